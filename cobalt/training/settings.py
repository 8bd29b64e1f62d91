"""The ``cobalt`` section of a training configuration."""

from dataclasses import fields
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from cobalt.errors import InputError, SetupError

CPU_BACKEND = "cpu"
BACKENDS = ("verl", CPU_BACKEND)
RELEASE, TOKENS = "release", "tokens"
"""What a token may count for in the loss (``cobalt.training.workers``)."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainingConfig:
    """The ``cobalt`` section of the configuration."""

    backend: str = "verl"
    """``verl``: vLLM rollouts on GPUs. ``cpu``: Hugging Face rollouts on a CPU."""
    seed: int = 0
    """Seed of Hugging Face rollouts."""
    budget: Any = None
    """What training may cost: ``{responses: N}``, ``{gpu_seconds: X}`` (``cobalt.training.budget``). None: no limit."""
    online: Any = None
    """Multi-turn training on the policy's own trajectories (``cobalt.training.online.settings``). None: off."""
    share_prompts: bool = False
    """Compute each prompt once, not once for each of its responses (``cobalt.training.shared_prompts``)."""
    loss_weights: Literal["release", "tokens"] = RELEASE
    """What a response token counts for in the loss (``cobalt.training.workers``)."""

    @classmethod
    def of(cls, config: Any) -> "TrainingConfig":
        """The section of a composed configuration. Raises ``CobaltError`` for what cannot be read or run."""
        try:
            settings = cls(**config.get("cobalt", {}))
        except ValidationError as error:
            raise InputError.of_setting(error, "cobalt.", (field.name for field in fields(cls))) from None
        if settings.backend == "hf":
            raise InputError("cobalt.backend=hf was removed: use verl (vLLM rollouts on GPUs), or cpu for small models")
        if settings.backend not in BACKENDS:
            raise SetupError(f"cobalt.backend={settings.backend}: choose one of {', '.join(BACKENDS)}")
        return settings
