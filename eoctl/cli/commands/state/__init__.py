"""`state rebuild|deliver|compare|show`."""
