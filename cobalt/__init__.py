"""Cobalt: contextual-bandit reinforcement learning for multi-turn code generation (arXiv 2602.03806).

Layers, imports point left only:
records, prompts, extraction <- rewards, bandit, perturbation, statistics <- sandbox <- serving
<- inference, evaluation, hacking, preparation <- training. Importing any module has no side effects.
"""

__version__ = "0.1.0"
