"""Message schemas that kafka-python lacks, in its format: field names, types, versions.

As of Kafka 4.3 (KIP-848, KIP-932); a test compares them with the jar's own.
"""
