"""The edges of short links: URLs in, redirects out, clicks to the log."""
