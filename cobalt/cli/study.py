"""``cobalt study``: the studies beside this package, where there is a checkout of the project."""

import os
import sys
from pathlib import Path

from cobalt.errors import SetupError


def main() -> None:
    """Become ``python -m studies`` in the project's folder."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / "studies").is_dir():
        print("cobalt study: error: not in the installed package; run it in a checkout of the project", file=sys.stderr)
        sys.exit(SetupError.exit_code)
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, "-m", "studies", *sys.argv[1:]])
