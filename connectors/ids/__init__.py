"""Makers of ids: what runs in every process that needs them, and asks the log once a minute."""
