"""What an agent is shown: passages as text, and the receipt of what was shown."""
