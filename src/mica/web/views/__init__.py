"""View models of the dashboard: plain values read from a memory, independent of HTTP and HTML."""
