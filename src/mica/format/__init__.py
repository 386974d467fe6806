"""Pure functions that turn values into text: lines, documents, fences, trees, charts."""
