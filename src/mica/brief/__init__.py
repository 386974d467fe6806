"""Makes the text an agent receives, records it, explains its lines, and hands a session over to the next agent."""
