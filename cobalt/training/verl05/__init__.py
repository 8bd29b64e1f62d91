"""The paper's stack: GRPO on veRL 0.5.0 as it was released, with our reward manager and the two released recipes."""
