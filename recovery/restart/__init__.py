"""Safe restart offsets: the strategies, and the decision that they share."""
