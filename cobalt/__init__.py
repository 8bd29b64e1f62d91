"""Cobalt: contextual-bandit reinforcement learning for multi-turn code generation (arXiv 2602.03806).

Each room has a floor of its own, and imports point down only; CONTRIBUTING.md lists the rooms from the ground up.
Importing any module has no side effects.
"""

__version__ = "0.3.0"
