"""What the pages of the dashboard show, as plain values read from a memory, without HTTP and HTML."""
