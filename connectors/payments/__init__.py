"""The outside world of money: the payment provider, its webhooks, its settlement files."""
