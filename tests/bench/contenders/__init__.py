"""What is measured: each module is the main program of one process and prints one `Finish`."""
