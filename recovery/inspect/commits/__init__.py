"""The commits of a group, as `__consumer_offsets` keeps them."""
