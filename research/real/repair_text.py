#!/usr/bin/env python3
"""How repetitive text is after feedback: drafts from n-grams of the prompt, and tokens that prompts have in common.

    python research/real/repair_text.py --tokenizer DIR --contexts DATA/contexts.jsonl --out OUT

*Drafts*: where the last ``LONGEST`` to 2 tokens stand earlier in prompt and response, the ``DRAFTED`` that follow there
are proposed, and those that agree with what was sampled are accepted (a draft without probabilities is accepted with
the target's probability of each token, so what was sampled is an unbiased sample of it: arXiv 2211.17192). Tokens a
pass: of a response, for each pass of the model over it.

*Shared*: tokens of a step's prompts with each response's own, with one prompt for all its responses, and with what
prompts have in common once. Writes ``study/repair_text.json`` and prints the tables.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.cli.entry import exit_codes
from cobalt.preproc.bandit_prompts import load_tokenizer
from cobalt.prompts import prompt_tokens
from cobalt.records import read_jsonl
from cobalt.tables import markdown_table
from research.real.study_tables import ARMS, FOLDER

LONGEST, DRAFTED = 4, 5
PROMPTS, RESPONSES = 32, 16
"""Of a step of the study."""
STEPS = 50
FIRST, PASSED, FAILED = "first program", "after success", "after failure"
FILE = "repair_text.json"


def agreeing(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens up to the first that differs."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def tokens_a_pass(prompt: Sequence[int], response: Sequence[int]) -> tuple[int, int]:
    """Tokens of a response, and passes of the model that draw it with drafts."""
    text, ends, passes, written = [*prompt, *response], dict[tuple[int, ...], int](), 0, 0
    seen, at = 0, len(prompt)
    while at < len(text):
        for end in range(seen + 1, at):  # n-grams that end before the last token: what follows them is known
            for size in range(2, min(LONGEST, end) + 1):
                ends[tuple(text[end - size : end])] = end
        seen = max(seen, at - 1)
        known = (ends.get(tuple(text[at - size : at])) for size in range(LONGEST, 1, -1))
        start = next((end for end in known if end is not None), None)
        draft = [] if start is None else text[start : min(at, start + DRAFTED)]
        accepted = agreeing(draft, text[at : at + DRAFTED])
        at += min(accepted + 1, len(text) - at)
        passes, written = passes + 1, at - len(prompt)
    return written, passes


def prompts_of(row: dict[str, Any], tokenizer: Any) -> Iterator[tuple[str, list[int], list[int]]]:
    """Kind, prompt and response of every program that was asked for; a conversation that has ended asks no more."""
    for sample, messages in enumerate(row["conversations"]):
        for turn, responses in enumerate(row["raw_responses"]):
            before = None if turn == 0 else row["public_pass_rates"][turn - 1][sample]
            if row.get("stop_at_success") and turn and before == 1:
                break
            prompt = prompt_tokens(tokenizer, messages[: 2 + 2 * turn])
            kind = FIRST if before is None else PASSED if before == 1 else FAILED
            yield kind, prompt, tokenizer(responses[sample], add_special_tokens=False)["input_ids"]


def shared(prompts: Sequence[Sequence[int]], rows: int) -> dict[str, int]:
    """Tokens of ``prompts`` that each stand before ``rows`` responses."""
    ordered = sorted(map(list, prompts))
    alone = sum(map(len, ordered))
    common = sum(agreeing(one, other) for one, other in pairwise(ordered))
    return {"with every response": rows * alone, "once for its responses": alone, "as a tree": alone - common}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--contexts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the --out of study.py")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.tokenizer, "--tokenizer ")
    chats = [row["conversation"] for row in read_jsonl(args.contexts, ("conversation",), unique=None)]
    contexts = [prompt_tokens(tokenizer, chat) for chat in chats]
    drafts: list[dict[str, Any]] = []
    trees: dict[str, list[Sequence[int]]] = {}
    for arm in ("base", "cobalt"):
        for name in ("test", "perturbed"):
            sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
            trees[name] = []
            for row in read_jsonl(args.out / f"{arm}-0" / f"{name}.turns.jsonl"):
                for kind, prompt, response in prompts_of(row, tokenizer):
                    one = (1, *tokens_a_pass(prompt, response))
                    sums[kind] = [sum(two) for two in zip(sums[kind], one, strict=True)]
                    trees[name].append(prompt)
            for kind, (responses, tokens, passes) in sorted(sums.items()):
                what = {"arm": ARMS[arm], "problems": name, "kind": kind, "responses": responses}
                rates = {"tokens a response": round(tokens / responses), "a pass": round(tokens / passes, 2)}
                drafts.append(what | rates)
    rng = random.Random(0)
    steps = [shared(rng.sample(contexts, PROMPTS), RESPONSES) for _ in range(STEPS)]
    sizes = {"contexts, 32 at random": {name: round(sum(one[name] for one in steps) / STEPS) for name in steps[0]}}
    sizes["contexts, all"] = shared(contexts, RESPONSES)
    sizes["conversations of three turns, all"] = shared(trees["perturbed"], 1)
    (FOLDER / FILE).write_text(json.dumps({"drafts": drafts, "shared": sizes}, indent=1) + "\n")
    print(markdown_table(list(drafts[0]), ([str(cell) for cell in row.values()] for row in drafts)))
    print(markdown_table(["prompts", *steps[0]], ([name, *map(str, row.values())] for name, row in sizes.items())))


if __name__ == "__main__":
    with exit_codes():
        main()
