"""What the app uses of vLLM, with the names and signatures of 0.23, and an engine that echoes."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from vllm.sampling_params import SamplingParams

__version__ = "0.0-fake"
__all__ = ["AsyncEngineArgs", "SamplingParams"]


@dataclass
class AsyncEngineArgs:
    """Three of the many options; an unknown one raises ``TypeError``, as in vLLM."""

    model: str
    tensor_parallel_size: int = 1
    max_model_len: int = 64
    max_num_seqs: int = 16

    def create_engine_config(self, usage_context: Any = None) -> SimpleNamespace:
        return SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=self.max_num_seqs),
            model_config=SimpleNamespace(model=self.model, max_model_len=self.max_model_len),
        )
