"""veRL's logger, which also leaves ``metrics.jsonl`` in the training folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cobalt.records.training_run import METRICS_FILE


def write_metrics(tracking: Any) -> None:
    """Put a subclass of ``verl.utils.tracking.Tracking`` in its place; the trainer imports it when it begins."""

    class TrackingToFile(tracking.Tracking):
        """Appends what is logged to the file, one JSON object per call."""

        def __init__(self, *args: Any, config: Mapping[str, Any], **kwargs: Any):
            """``config``: the resolved configuration of the run."""
            super().__init__(*args, config=config, **kwargs)
            self._metrics_path = Path(config["trainer"]["default_local_dir"]) / METRICS_FILE

        def log(self, data: Mapping[str, Any], step: int, backend: Any = None) -> None:
            super().log(data=data, step=step, backend=backend)
            numbers = {name: float(value) for name, value in data.items()}
            self._metrics_path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._metrics_path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, **numbers}) + "\n")

    tracking.Tracking = TrackingToFile
