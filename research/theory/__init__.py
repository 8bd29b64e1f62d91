"""The paper's bound, measured: what the stepwise objective misses of the multi-turn one (research/theory/README.md)."""
