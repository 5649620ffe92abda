"""Turn the remedies that verdicts name into requests to brokers."""
