"""MCP over standard input and output: the six tools and the prompts by which a coding agent asks its memory."""
