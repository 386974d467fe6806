"""Line ranges that are found again after a file has changed."""
