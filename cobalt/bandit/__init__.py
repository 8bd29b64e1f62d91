"""The contextual-bandit set: evaluated multi-turn trajectories to prompts. Pure: no files, no tokenizer, no Ray."""
