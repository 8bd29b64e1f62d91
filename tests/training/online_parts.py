"""Parts for tests of online training: settings, an engine that answers from a script, MiniCoder's tokenizer."""

from pathlib import Path

from cobalt.training.online.settings import Method, OnlineSettings
from cobalt.training.scoring import RewardSettings

MODEL = Path(__file__).parents[2] / "assets/minicoder"


def make_settings(**changes):
    """Of the method, or of the reward where they are its own."""
    reward = {name: changes.pop(name) for name in RewardSettings.model_fields if name in changes}
    return OnlineSettings(
        method=Method(**{"method": "grpo", "turns": 3, **changes}),
        reward=RewardSettings(**{"executor": "local", "max_in_flight": 8, "require_end": True, **reward}),
        model=str(MODEL),
    )


class ScriptedEngine:
    """Answers request i of call t with ``answers[t][i]``, the last one first; keeps what it was asked."""

    def __init__(self, tokenizer, answers):
        self.tokenizer, self.answers, self.asked = tokenizer, list(answers), []

    def __call__(self, requests, on_finished):
        answers = self.answers[len(self.asked)]
        assert len(answers) == len(requests)
        self.asked.append(requests)
        for index, answer in reversed([*enumerate(answers)]):
            on_finished(index, [*self.tokenizer.encode(answer), self.tokenizer.eos_token_id])
