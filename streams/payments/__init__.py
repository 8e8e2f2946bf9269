"""Payments: books of accounts in double entry, and payments through a provider."""
