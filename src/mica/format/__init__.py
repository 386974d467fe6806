"""Pure functions from values to text: lines, documents, fences, trees."""
