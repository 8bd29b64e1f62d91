"""Offline baselines: training on the reference's stored answers to the contexts that Cobalt trains on."""
