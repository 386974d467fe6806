"""The only place of mica that talks to a language model. Nothing here is imported unless a model is asked."""
