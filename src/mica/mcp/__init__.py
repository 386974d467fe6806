"""The MCP server: six tools, and prompts and resources. It serves standard input and output, and HTTP."""
