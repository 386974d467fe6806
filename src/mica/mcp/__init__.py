"""The MCP server: six tools, prompts and resources, over standard input and output and over HTTP."""
