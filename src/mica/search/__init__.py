"""Search for marks and crystals by words, times and meaning."""
