"""Shell commands that agents run: parsed, and which files and lines they read."""
