"""Hidden-test evaluation of multi-turn trajectories: scores, tables, comparison, figure."""
