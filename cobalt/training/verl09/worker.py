"""What veRL 0.9.1's workers import before they build anything (``model.external_lib``): names of ours."""

from verl.workers.rollout import base

import cobalt.training.verl09.engine  # noqa: F401 - registers

base._ROLLOUT_REGISTRY["vllm", "async"] = "cobalt.training.verl09.weights.ServerAdapter"
