"""The remedies that verdicts name, as requests to brokers."""
