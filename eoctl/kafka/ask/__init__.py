"""Questions to brokers, and their facts: metadata, coordinators, groups, settings, clocks."""
