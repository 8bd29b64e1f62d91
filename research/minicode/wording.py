"""MiniCoder's prompt set: the wording that it was pre-trained on, Cobalt's first version."""

from functools import cache
from pathlib import Path

from cobalt.prompts import PromptSet, load_prompts

NAME = "assets/minicode/prompts.json"
"""From the project's folder."""
FILE = Path(__file__).resolve().parents[2] / NAME


@cache
def prompts() -> PromptSet:
    """The set of ``FILE``."""
    return load_prompts(str(FILE))
