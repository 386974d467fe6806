"""Predict the files that a task will need, learn trails from real work, and measure whether that saves tokens."""
