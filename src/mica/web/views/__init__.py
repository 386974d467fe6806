"""What each page shows, read from a memory as plain values. Nothing here knows of HTTP or HTML."""
