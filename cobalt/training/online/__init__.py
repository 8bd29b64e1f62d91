"""Online multi-turn training (GRPO-MT, VeRPO-MT) on veRL 0.5.0: docs/training.md.

Read in this order: ``settings``; ``rollouts``, how the policy plays; ``rows``, what veRL and its trainer get of that;
``manager``, from programs to rewards and advantages.
"""
