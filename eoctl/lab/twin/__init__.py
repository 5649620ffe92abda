"""A local cluster that is an incident: made from a bundle, to try what must not go wrong.

The brokers find the topics in their bootstrap metadata and the logs on their disk, under the
incident's topic ids and leader epochs, so that a producer id, an offset or an epoch means there
what it meant in the incident. What the bundle does not hold is left out and said, not made up.
"""
