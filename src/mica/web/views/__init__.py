"""The contents of the dashboard's pages, as plain values read from a memory, without HTTP and HTML."""
