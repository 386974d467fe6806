"""Trails: learning, matching, loading, publishing and measuring them."""
