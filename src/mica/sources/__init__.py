"""Ask all sources about a concept at once, and make one account of their answers."""
