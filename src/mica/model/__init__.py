"""The value types (events, marks, crystals, teachings, trails, walks) and the five laws of crystals."""
