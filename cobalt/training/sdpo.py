"""Self-distillation policy optimization (SDPO, arXiv 2601.20802): the policy that has seen the feedback teaches.

The policy has answered a context x with the tokens y, and the answer's program failed with feedback f. The same policy,
given x and f, is the teacher. The advantage of a token is how much likelier the teacher finds it, without a gradient:

    A_t = log p(y_t | x, f, y_<t) − log p(y_t | x, y_<t)

This is the paper's loss on the sampled tokens, with the policy at the step's start as teacher and as student. The
teacher is not shown the answer itself. A row without a teacher has advantages of 0.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from cobalt.errors import InputError
from cobalt.prompts import hindsight
from cobalt.training.manager import FEEDBACK, PROGRAM
from cobalt.training.scoring import INFRA
from cobalt.training.shared_prompts import balanced_rows, rows_by_prefix


class Hindsight(NamedTuple):
    """What a row's teacher is shown beside the context. Not both are None."""

    feedback: str | None
    answer: str | None


def hindsights(
    infos: Mapping[int, Mapping[str, Any]], problems: Mapping[int, str], solutions: bool
) -> dict[int, Hindsight]:
    """What is known after the response of each row; rows without a teacher are missing.

    ``infos``: what the reward manager says of them; ``problems``: their groups; ``solutions``: a row is also shown the
    first program of another row of its group that passes all tests. Raises ``InputError`` where nothing tells which
    ones pass.
    """
    scored = {row: info for row, info in infos.items() if not info[INFRA]}
    passing: dict[str, list[int]] = defaultdict(list)
    for row, info in scored.items():
        if "acc" not in info:
            raise InputError("cobalt.sdpo needs a reward function that returns 'acc': 1 if all tests pass, else 0")
        if info["acc"] == 1:
            passing[problems[row]].append(row)
    found = {}
    for row, info in scored.items():
        others = [other for other in passing[problems[row]] if solutions and other != row]
        known = Hindsight(info[FEEDBACK], infos[others[0]][PROGRAM] if others else None)
        if any(part is not None for part in known):
            found[row] = known
    return found


def teacher_prompts(
    tokenizer: Any, contexts: Sequence[Any], shown: Mapping[int, Hindsight], template: Mapping[str, Any]
) -> dict[int, Tensor]:
    """Token ids of what each row's teacher reads. ``contexts``: messages; ``template``: arguments of veRL's data."""
    if not shown:
        return {}
    conversations = [hindsight(contexts[row], *known) for row, known in shown.items()]
    how = {**template, "add_generation_prompt": True, "tokenize": True, "return_dict": False}
    found = tokenizer.apply_chat_template(conversations, **how)  # all at once: on several cores
    return {row: torch.tensor(ids) for row, ids in zip(shown, found, strict=True)}


def teacher_log_probs(
    group: Any, prompts: Sequence[Tensor], responses: Sequence[Tensor], temperature: float, unit: int
) -> list[Tensor]:
    """Log-probabilities of the tokens of each response after its prompt, by the policy of the worker ``group``.

    ``unit``: ranks compute so many rows at a time.
    """
    ranks = max(group._dispatch_info["actor"]) + 1
    count = len(prompts)
    padded = [*range(count), *[0] * (-count % (ranks * unit))]  # each rank gets equally many rows
    rows = rows_by_prefix([prompts[row] for row in padded], [len(responses[row]) for row in padded])
    order = [padded[row] for row in balanced_rows(rows, ranks)[0]]
    ids = [torch.cat([prompts[row], responses[row]]) for row in order]
    columns = {
        "prompts": [prompts[row] for row in order],
        "responses": [responses[row] for row in order],
        "input_ids": ids,
        "position_ids": [torch.arange(len(row)) for row in ids],
        "loss_mask": [torch.ones_like(responses[row]) for row in order],
    }
    nested = {name: torch.nested.as_nested_tensor(values, layout=torch.jagged) for name, values in columns.items()}
    data = TensorDict(nested, batch_size=len(order))
    tu.assign_non_tensor(data, calculate_entropy=False, compute_loss=False, temperature=temperature)
    found = dict(zip(order, group.compute_log_prob(data)["log_probs"].unbind(), strict=True))
    # veRL has the value of a token at its predecessor's place
    return [found[row][len(prompts[row]) - 1 : -1].float() for row in range(count)]


def with_teacher(
    advantages: Sequence[Tensor], student: Sequence[Tensor], teacher: Mapping[int, Tensor], weight: float
) -> list[Tensor]:
    """Advantages of the tokens of all rows: (1 − weight) times these, and weight times the teacher's.

    ``student``, ``teacher``: log-probabilities of the same tokens; of the teacher those of some rows.
    """
    mixed = [(1 - weight) * values for values in advantages]
    for row, log_probs in teacher.items():
        mixed[row] = mixed[row] + weight * (log_probs - student[row])
    return mixed


def teacher_metrics(
    infos: Mapping[int, Mapping[str, Any]], student: Sequence[Tensor], teacher: Mapping[int, Tensor]
) -> dict[str, float]:
    """``sdpo/teacher_share``: of the rows; ``sdpo/advantage_*``: their tokens' mean, passed and failed."""
    metrics = {"sdpo/teacher_share": len(teacher) / len(infos)}
    for name, passed in (("passed", True), ("failed", False)):
        found = [teacher[row] - student[row] for row in teacher if (infos[row]["acc"] == 1) == passed]
        if found:
            metrics[f"sdpo/advantage_{name}"] = torch.cat(found).mean().item()
    return metrics
