"""Derivations: agents that repartition or fan out one topic into another."""
