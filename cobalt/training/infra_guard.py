"""The end of a training whose samples cannot be scored any more."""

from collections import deque
from typing import Any

from cobalt.errors import SetupError
from cobalt.training.reward_metrics import reward_metrics
from cobalt.training.scoring import INFRA

MAX_INFRA_RATE = 0.25
WINDOW_STEPS = 4
"""Steps over which the share of infra failures is taken. With the default limit a step that is lost whole (a restart of
the service) is survived, and a second one within the window ends training."""


class InfraGuard:
    """Ends training when too many samples could not be scored. veRL calls it as the data set's ``on_batch_end``."""

    def __init__(self, max_infra_rate: float):
        """``max_infra_rate``: share in [0, 1] of samples over the last ``WINDOW_STEPS`` steps that may fail."""
        self.max_infra_rate = max_infra_rate
        # Steps before the first count as free of failures: else one bad step at the start would be the whole window.
        self._shares: deque[float] = deque([0.0] * WINDOW_STEPS, maxlen=WINDOW_STEPS)

    def __call__(self, batch: Any) -> None:
        """After each step's metrics are logged; a batch without ``infra`` is one whose scoring failed as a whole.

        Raises ``SetupError`` when the limit is exceeded.
        """
        self.note(reward_metrics(batch.non_tensor_batch).get(f"reward/{INFRA}", 1.0))

    def note(self, share: float) -> None:
        """``share`` in [0, 1] of a step's samples could not be scored. Raises ``SetupError``."""
        self._shares.append(share)
        share = sum(self._shares) / WINDOW_STEPS
        if share > self.max_infra_rate:
            raise SetupError(
                f"stopped: {share:.0%} of the samples of the last {WINDOW_STEPS} steps could not be run "
                f"(reward_model.reward_kwargs.max_infra_rate={self.max_infra_rate}); "
                "restore the execution service and start again: training resumes from the last checkpoint"
            )
