"""Files: predict those a task will need, learn trails from real work, and measure whether that helps."""
