"""Bytewax, in an environment of its own: it exists for Python 3.12 and older only."""
