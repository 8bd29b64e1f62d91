"""MiniCode, a small generated world of programming problems, and MiniCoder, the policy that is pre-trained on it."""
