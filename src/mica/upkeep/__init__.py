"""Maintenance of a space: purge, retention, ageing, copies, the schedule."""
