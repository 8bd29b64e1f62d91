"""Contextual-bandit GRPO on veRL 0.9.1: subclasses, registered names, and few names replaced where these do not reach.

- ``scoring``, ``responses``, ``manager``: the reward, computed for each response as soon as it is generated.
- ``config``, ``preflight``: the recipes' settings, and what is refused before anything starts.
- ``launch``, ``runner``: a run from its manifest to veRL's main loop.
- ``trainer``, ``rollouts``, ``updates``: neutral infrastructure failures, metrics, budget, what an update gets.
- ``online``, ``agent_loops``: the policy's own trajectories, for the online baselines.
- ``engine``, ``shared_prompts``, ``shared_attention``, ``token_scores``: each prompt computed once.
- ``worker``, ``weights``, ``cpu``, ``cpu_rollouts``: what veRL's processes import; training on CPU cores.
- ``verl05``: the paper's stack, apart.
"""
