"""Learn, match, load, publish and measure trails."""
