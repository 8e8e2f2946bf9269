"""Deciders: agents that answer commands with events, as the single writer of a partition."""
