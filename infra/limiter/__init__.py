"""The limiter's past: decisions read back from the log."""
