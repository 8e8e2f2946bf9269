"""Providers to try things with: real servers that take messages and misbehave when told to."""
