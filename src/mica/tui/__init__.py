"""The terminal dashboard, in Textual: an extra, imported only when it is opened."""
