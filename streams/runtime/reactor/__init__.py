"""Reactors: agents that call the outside world, at least once, and record what came of it."""
