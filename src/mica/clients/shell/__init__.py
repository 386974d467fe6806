"""TODO: say in one line what this package is for."""
