"""In-context reward hacking: find it in trajectories, check it by running programs, judge it with a model.

A policy that was shown a test with a wrong expected output, and whose next program satisfies that wrong test, has
learned to please the feedback instead of solving the problem (paper, section on in-context reward hacking).
"""
