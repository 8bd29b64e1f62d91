"""Multi-turn rollouts as veRL's workers call them.

veRL repeats each prompt ``rollout.n`` times, which is samples × turns here, and wants as many rows back; they may have
prompts of their own. So the rows of a trajectory are adjacent, one for each turn, and those after its end are empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.nn.functional import pad
from verl import DataProto
from verl.utils import hf_tokenizer

from cobalt.training.manager import shared_costs
from cobalt.training.online.programs import BackgroundPrograms
from cobalt.training.online.settings import OnlineSettings
from cobalt.training.online.trajectories import Generate, Rules, Trajectory, play

ROLLOUT_FAILED = "rollout_failed"
"""Column of the rows: whether the infrastructure ended their trajectory."""
TESTS = "public_test_cases"
"""In ``extra_info.tools_kwargs`` of veRL's data, the part of a row that reaches rollouts."""


@dataclass(frozen=True)
class Widths:
    """Of the tensors that veRL wants, in tokens."""

    prompt: int
    response: int


class MultiTurn:
    """Plays the trajectories of a batch with any engine."""

    def __init__(self, settings: OnlineSettings, config: Any):
        """``config``: veRL's ``rollout``."""
        self._settings = settings
        self._widths = Widths(config.prompt_length, config.response_length)
        self._tokenizer = hf_tokenizer(settings.model)

    def rollout(self, prompts: DataProto, generate: Generate, seeds_B: Sequence[int]) -> DataProto:
        """Rows for ``prompts`` (B = trajectories × turns); ``seeds_B``: of each row's response."""
        settings, widths = self._settings, self._widths
        trajectories = _trajectories(prompts, settings.turns, seeds_B)
        rules = Rules(self._tokenizer, settings.turns, widths.prompt, widths.response, settings.require_end)
        with BackgroundPrograms(settings) as programs:
            waited_s = play(trajectories, generate, programs, rules)
        costs = {"execution_wait_s": waited_s, **programs.work_done}
        return _rows(trajectories, settings.turns, widths, self._tokenizer.pad_token_id, costs)


def _trajectories(prompts: DataProto, turns: int, seeds_B: Sequence[int]) -> list[Trajectory]:
    columns = prompts.non_tensor_batch
    return [
        Trajectory(
            messages=list(columns["raw_prompt"][row]),
            next_prompt=tuple(columns["raw_prompt_ids"][row]),
            seeds_T=seeds_B[row : row + turns],
            public_tests=(columns["tools_kwargs"][row] or {}).get(TESTS),
        )
        for row in range(0, len(prompts), turns)
    ]


def _rows(
    trajectories: Sequence[Trajectory], turns: int, widths: Widths, pad_token: int, costs: dict[str, float]
) -> DataProto:
    """One row per trajectory and turn. A row after the end has one token of prompt, for models need one, and no other.

    Costs are shared among the rows with a response: the others are dropped later.
    """
    tensors, failed = [], []
    for trajectory in trajectories:
        nothing = (trajectory.prompts[0][-1:], [])
        played = [*zip(trajectory.prompts, trajectory.responses, strict=True)]
        for prompt, response in [*played, *[nothing] * (turns - len(played))]:
            tensors.append(_row(prompt, response, widths, pad_token))
            failed.append(trajectory.failed)
    batch = {name: torch.stack([row[name] for row in tensors]) for name in tensors[0]}
    named = {ROLLOUT_FAILED: np.array(failed, dtype=object)}
    live_B = batch["attention_mask"][:, widths.prompt :].any(1).numpy()
    for name, shares in shared_costs("rollout", costs, int(live_B.sum())).items():
        named[name] = np.where(live_B, shares[0], 0.0).astype(object)
    return DataProto(batch=TensorDict(batch, batch_size=len(tensors)), non_tensor_batch=named)


def _row(prompt: Sequence[int], response: Sequence[int], widths: Widths, pad_token: int) -> dict[str, torch.Tensor]:
    """The prompt padded on its left, the response on its right; positions count valid tokens and then go on."""
    before, after = widths.prompt - len(prompt), widths.response - len(response)
    prompts = pad(torch.tensor(prompt), (before, 0), value=pad_token)
    responses = pad(torch.tensor(response, dtype=torch.long), (0, after), value=pad_token)
    positions = torch.arange(-before, len(prompt) + widths.response).clamp(min=0)
    mask = (torch.arange(len(positions)) >= before) & (torch.arange(len(positions)) < widths.prompt + len(response))
    return {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses]),
        "attention_mask": mask.long(),
        "position_ids": positions,
    }
