"""Message schemas that kafka-python does not carry, in its form: field names, types, versions.

As of Kafka 4.3 (KIP-848, KIP-932); a test holds them against the jar's own.
"""
