"""One module per coding agent: its transcripts and hook payloads, read into events."""
