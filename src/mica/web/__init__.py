"""The server: the HTTP API, event streams and the dashboard, for all spaces of one machine or database."""
