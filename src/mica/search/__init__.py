"""What matters now: sources offer passages, one deadline gathers them, a ranker orders them, a budget cuts them."""
