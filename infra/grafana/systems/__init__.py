"""One dashboard a system: the same questions as the overview, narrowed, and its own results."""
