"""What many marks meant: sentences taken from them, each with its sources."""
