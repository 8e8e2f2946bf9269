"""The runtime's core in one thread, on a clock, a broker and stores that a seed drives."""
