"""The commands of `lab`: a local Kafka, its demo, its drills."""
