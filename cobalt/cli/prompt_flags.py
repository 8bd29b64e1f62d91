"""Which prompt set a command renders or expects, and that its input is of one set."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.prompts import COBALT, OWN_NAME, PromptSet, load_prompts, prompts_of
from cobalt.records.manifest import manifest_path, origin_of


@dataclass(frozen=True, kw_only=True)
class PromptsConfig(CommandConfig):
    """For commands that render prompts or read conversations."""

    prompts: str | None = None
    """Prompt set: `cobalt`, or a JSON file (docs/formats.md). Default: the set of the input, else `cobalt`."""

    def prompts_or_none(self, inputs: Sequence[Path]) -> PromptSet | None:
        """The set of --prompts, or the one that the manifests of ``inputs`` name. None if there is neither.

        Raises ``InputError`` if these are different sets.
        """
        chosen = None if self.prompts is None else load_prompts(self.prompts)
        for path in inputs:
            origin = origin_of(path).get("prompts")
            if origin == OWN_NAME and self.prompts is not None:
                continue  # Cobalt's first version, whose texts no manifest holds
            try:
                named = None if origin is None else prompts_of(origin)
            except ValueError as error:
                raise InputError.at(manifest_path(path), None, f"'origin' names no prompt set: {error}") from None
            if named is not None and chosen not in (None, named):
                other = "the other input" if self.prompts is None else "--prompts"
                raise InputError.at(path, None, f"was made with another prompt set than {other}")
            chosen = chosen or named
        return chosen

    def prompt_set(self, inputs: Sequence[Path] = ()) -> PromptSet:
        """``prompts_or_none``, or else Cobalt's own set."""
        return self.prompts_or_none(inputs) or COBALT


class InstructionCheck:
    """Checks that either all or none of a file's instructions are of the prompt set.

    If none is, the set's system and feedback texts still go around them. ``required``: the set was asked for, so all
    must be of it.
    """

    def __init__(self, prompts: PromptSet, required: bool):
        self.prompts, self._required = prompts, required
        self._fits: bool | None = True if required else None

    def see(self, instruction: str) -> None:
        """Raise ``ValueError`` if this instruction is of another kind than required, or than those before it."""
        fits = self.prompts.fits(instruction)
        if self._fits is None:
            self._fits = fits
        elif fits != self._fits:
            what = "is not of the prompt set of --prompts" if self._required else "and those before are of two sets"
            raise ValueError(f"field 'instruction' {what}: mixed prompt sets (docs/formats.md)")

    @property
    def foreign(self) -> bool:
        """Whether the instructions that were seen are not of the set."""
        return self._fits is False

    def tell(self, path: Path) -> None:
        """After reading: one line if the instructions are foreign."""
        if self.foreign:
            print(
                f"note: the instructions of {path} are not of the prompt set that is used. Its system and feedback "
                "texts go around them. To use another set: --prompts FILE (docs/formats.md)",
                file=sys.stderr,
            )
