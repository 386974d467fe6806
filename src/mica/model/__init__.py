"""Values and the five laws: events, marks, crystals, teachings, trails and walks."""
