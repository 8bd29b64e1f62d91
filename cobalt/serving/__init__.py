"""Ray Serve apps and their clients."""
