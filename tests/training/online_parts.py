"""Parts for tests of online training: settings, an engine that answers from a script, MiniCoder's tokenizer."""

from pathlib import Path

from cobalt.training.online.settings import OnlineSettings

MODEL = Path(__file__).parents[2] / "assets/minicoder"


def make_settings(**changes):
    defaults = {"method": "grpo", "turns": 3, "model": str(MODEL), "executor": "local", "max_in_flight": 8}
    return OnlineSettings(**{**defaults, "require_end": True, "limits": {}, **changes})


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
