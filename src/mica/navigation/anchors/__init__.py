"""Anchors: line ranges of files that can be found again after the file has changed."""
