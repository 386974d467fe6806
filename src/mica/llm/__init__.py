"""Language models and embeddings: the only place that calls a model."""
