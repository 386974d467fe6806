"""The verbs of the command line under `/api`: parse, call memory, answer."""
