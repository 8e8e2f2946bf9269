"""Quix Streams, in an environment of its own: it pins an older confluent-kafka than we use."""
