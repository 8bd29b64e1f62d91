"""Contextual-bandit GRPO on veRL 0.5.0, through veRL's own hooks: scoring, reward manager, task runner, backends."""
