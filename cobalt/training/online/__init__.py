"""Online multi-turn training (GRPO-MT, VeRPO-MT) on veRL 0.5.0: docs/training.md.

Read in this order: ``settings``; ``trajectories``, how the policy plays; ``rollouts``, as veRL's workers call it;
``manager`` and ``credit``, from programs to rewards and advantages; ``rows``, what the trainer does with the rows.
"""
