"""A socket of its own for each training, through which vLLM takes the policy's weights.

veRL 0.9.1 names it after the Ray job and the rank, in ``/tmp``. Trainings on one host whose Rays are their own are all
job 1. Then the engine of one takes the weights of another, or waits for ever. Here both sides add a number that the
training drew (``runner``) to the rank. vLLM's side does so by itself: it reads ``BASE_RANK``.
"""

import os
from typing import Any

from verl.workers.rollout.vllm_rollout import vllm_rollout

from cobalt.training.config import BASE_RANK


class ServerAdapter(vllm_rollout.ServerAdapter):
    """veRL's, the side that sends."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        name, _, rank = self.zmq_handle.removesuffix(".sock").rpartition("-")
        self.zmq_handle = f"{name}-{int(os.environ[BASE_RANK]) + int(rank)}.sock"
