"""The dashboard in a terminal. It needs Textual, an optional dependency, and is imported only when it is opened."""
