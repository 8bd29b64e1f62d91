"""Every change made to veRL, in memory: ``table`` lists them, ``install`` applies them, the other modules hold them."""
