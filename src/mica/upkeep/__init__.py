"""Maintenance of a space: removing content, compressing old events, copying a space, and running jobs when due."""
