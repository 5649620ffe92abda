"""`eoctl lab`: a real Kafka on this machine, for drills and for eoctl's own tests."""
