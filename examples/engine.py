"""An engine of one's own: recorded answers. ``--engine examples/engine.py:Recorded --model examples/answers.json``.

An engine has ``model_id`` (it goes into manifests), ``max_in_flight`` and ``generate``, which raises
``cobalt.errors.InfraError`` where it has no answer through no fault of the model.
"""

import json
from pathlib import Path

from cobalt.completion import Completion, Message, Sampling
from cobalt.errors import InfraError


class Recorded:
    """Answers by a phrase of the problem, and by the number of programs so far; the last answer is repeated."""

    max_in_flight = 8

    def __init__(self, model: str | None):
        """``model``: the value of ``--model``, here a JSON file ``{phrase: [answers]}``."""
        if model is None:
            raise ValueError("--model must name the file with the answers")
        self.model_id = Path(model).name
        self._answers: dict[str, list[str]] = json.loads(Path(model).read_text())

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer one chat request."""
        turn = sum(message["role"] == "assistant" for message in messages)
        for phrase, answers in self._answers.items():
            if phrase in messages[1]["content"]:
                # an engine that counts tokens gives prompt_tokens and completion_tokens, too
                return Completion(answers[min(turn, len(answers) - 1)])
        raise InfraError("no answer is recorded for this problem")
