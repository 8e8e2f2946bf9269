"""A payment provider for development and tests; `python -m connectors.payments.simulator`."""
