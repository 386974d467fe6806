"""The server: HTTP, events as they happen, and the dashboard, over the memories of one machine or database."""
