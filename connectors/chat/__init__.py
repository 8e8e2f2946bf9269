"""What passes between the API's processes without going through the log."""
