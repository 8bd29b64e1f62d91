"""What a reward manager of veRL does with a response, whenever it is called: decode it, call the reward function.

An error in the reward function is raised: it would otherwise be learned.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cobalt.errors import CobaltError, InputError, raised
from cobalt.extraction import extract_code
from cobalt.rewards import CountTokens, Thinking, o200k_counter, thinking_of, tokenizer_counter
from cobalt.training.scoring import BATCH, Batch, RewardSettings, Score, is_finished, last_program, service_errors

TURN, SOLVED_BEFORE, REPEATS = "turn", "solved_before", "repeats"
"""Names of what ``follows`` tells of a response."""
REWARD_LOADER = "verl.trainer.ppo.reward"
"""The module of veRL that loads reward functions by path."""


class ResponseScorer:
    """The reward function with its settings and the policy's tokenizer. It holds no connection: veRL may pickle it."""

    def __init__(
        self,
        tokenizer: Any,
        compute_score: Callable[..., Any],
        reward_kwargs: Mapping[str, Any],
        source_key: str = "data_source",
    ):
        """``reward_kwargs``: ``RewardSettings``; ``source_key``: ``data.reward_fn_key``. Raises ``InputError``."""
        self.settings = RewardSettings.read(reward_kwargs)
        self.tokenizer, self.compute_score, self.source_key = tokenizer, compute_score, source_key
        chosen = self.settings.thinking
        self.thinking: Thinking = thinking_of(tokenizer) if chosen == "auto" else chosen
        # veRL binds the user's function to its constants as partial(call, function, constants). ``call`` takes any
        # arguments, so only the function itself tells whether it wants the batch.
        function = compute_score
        if isinstance(compute_score, partial) and compute_score.func.__module__ == REWARD_LOADER:
            function = compute_score.args[0]
        self.gives_batch = BATCH in inspect.signature(function).parameters

    def items(self, ids_B: Sequence[list[int]], columns: Mapping[str, Any], width: int) -> list[dict[str, Any]]:
        """One set of arguments of ``compute_score`` per response.

        ``ids_B``: token ids; ``columns``: of the data; ``width``: most tokens of a response.
        """
        texts_B = self.tokenizer.batch_decode(ids_B, skip_special_tokens=True)
        infos_B = columns.get("extra_info", [None] * len(ids_B))
        items = []
        for row, (ids, text) in enumerate(zip(ids_B, texts_B, strict=True)):
            finished = not self.settings.require_end or is_finished(ids, width, self.tokenizer.eos_token_id)
            read_by = {"finished": finished, "extraction": self.settings.extraction, "thinking": self.thinking}
            items.append(
                {
                    "data_source": columns[self.source_key][row],
                    "solution_str": text,
                    "ground_truth": columns["reward_model"][row]["ground_truth"],
                    "extra_info": {**(infos_B[row] or {}), **read_by},
                }
            )
        return items

    async def score(self, item: dict[str, Any], batch: Batch) -> Score:
        """The named scores that the reward function gives one response.

        Raises one of ``service_errors``, and ``InputError`` for any other error in the reward function, or no score.
        """
        try:
            result = self.compute_score(**item, **({BATCH: batch} if self.gives_batch else {}))
            if inspect.isawaitable(result):
                result = await result
            named = result if isinstance(result, dict) else {"score": result}
            named = {name: float(value) for name, value in named.items()}
        except (CobaltError, *service_errors()):
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"the reward function {raised(error)}") from error
        if not math.isfinite(named.get("score", math.nan)):
            raise InputError(f"the reward function must give a finite number as 'score', and gave {named}")
        return named

    def counter(self) -> CountTokens:
        """Whose tokens the reward's format part counts."""
        return o200k_counter() if self.settings.lengths == "o200k_base" else tokenizer_counter(self.tokenizer)


def follows(item: Mapping[str, Any], program: str | None, turn: int, earlier: str | None) -> Score:
    """How many programs a response follows, whether one of them is right, and whether it has the last of them again.

    ``item``: of ``ResponseScorer.items``; ``program``: of the response; ``turn``: how many; ``earlier``: the last one.
    """
    repeats = program is not None and program == earlier
    solved = item["extra_info"].get("prev_best_pass_rate") == 1
    return {TURN: float(turn), SOLVED_BEFORE: float(solved), REPEATS: float(repeats)}


def follows_context(item: Mapping[str, Any]) -> Score:
    """``follows`` of a response to a row's own conversation; a row without one shows no programs."""
    info = item["extra_info"]
    rule, conversation = info["extraction"], info.get("conversation")
    messages = [] if conversation is None else list(conversation)
    turn = sum(message["role"] == "assistant" for message in messages)
    return follows(item, extract_code(item["solution_str"], rule), turn, last_program(messages, rule))
