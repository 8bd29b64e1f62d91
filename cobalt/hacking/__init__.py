"""In-context reward hacking: find it in trajectories, check it by running programs, judge it with a model."""
