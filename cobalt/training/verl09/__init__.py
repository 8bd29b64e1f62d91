"""Training on veRL 0.9.1, today's stack. Nothing of veRL is patched: every addition is a subclass or a registered name.

- ``config``: the recipes' settings under the names that veRL 0.9.1 reads.
- ``manager``: the reward, computed for each response as soon as it is generated.
- ``trainer``: neutral infrastructure failures, reward metrics, costs, budget, finished runs.
- ``rollouts``: what comes back from the rollouts, and what was lost on the way.
- ``updates``: which rows an optimizer update gets.
- ``engine``: each prompt computed once in old log-probabilities, reference and update.
- ``weights``: a socket of its own for each training, through which vLLM takes the policy's weights.
- ``worker``: what veRL's workers import, so that they know ours, and the worker of online training.
- ``cpu``, ``cpu_rollouts``: training on CPU cores; two of veRL's names are replaced there.
- ``runner``: veRL's task runner with our trainer.
"""
