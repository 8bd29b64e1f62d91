"""Contextual-bandit GRPO on veRL 0.5.0: scores, the reward manager, the launch, and every change made to veRL."""
