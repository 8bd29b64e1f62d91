"""Draws solve.svg, a recording of ``cobalt solve``: ``python docs/figures/solve.py`` and that command's arguments.

Recorded was problem ``half`` of ``examples/problems.jsonl``, its question and tests as files, with
Qwen2.5-Coder-0.5B-Instruct (weights of the Q4_K_M file) on two CPU cores.
"""

import asyncio
import io
import re
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from cobalt.cli.entry import parse
from cobalt.inference.flags import SolveConfig
from cobalt.inference.solve import main, say

WIDTH = 84
FONTS = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
"""Rich has the browser fetch them. Without them its own monospaced font is taken."""


def draw(path: Path) -> None:
    config = parse(SolveConfig)
    console = Console(record=True, file=io.StringIO(), width=WIDTH, color_system="truecolor")
    shown = [Path(word).name for word in sys.argv[1:]]
    console.print(f"$ cobalt solve {' '.join(shown)}", style="bold", markup=False, highlight=False)
    with redirect_stdout(io.StringIO()) as submitted, suppress(SystemExit):
        asyncio.run(main(config, console))
    say(console, f"\n{submitted.getvalue()}")
    path.write_text(FONTS.sub("", console.export_svg(title="cobalt solve", theme=MONOKAI, unique_id="solve")))


if __name__ == "__main__":
    draw(Path(__file__).with_name("solve.svg"))
