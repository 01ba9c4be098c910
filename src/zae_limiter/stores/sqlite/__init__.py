"""``sqlite:///path``: several processes on one host, one file, nothing to start."""
