"""The locks that uv makes from ``pyproject.toml``: the training environment on GPUs, and one for each light extra.

    python constraints/lock.py            # writes all of them
    python constraints/lock.py --check    # exit code 1 if one is not what this would write

Needs the network and ``uv``. ``cpu.txt`` is what was run, and is kept by hand.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAPER = """\
# The paper's training environment, on GPUs: Python 3.11 and 3.12, Linux x86-64, as of {day}.
# constraints/lock.py makes it; paper.in gives the reasons for its pins, paper.overrides.txt the exceptions.
# Install with scripts/setup_gpu.sh paper (or pip --no-deps: with dependencies, pip refuses the exceptions).
"""
GPU = """\
# The training environment on GPUs: veRL 0.9.1 with vLLM 0.24, Python 3.11 and 3.12, Linux x86-64, CUDA 13.
# As of {day}; constraints/lock.py makes it, without overrides. Install with: bash scripts/setup_gpu.sh
"""
SGLANG = """\
# The training environment on GPUs with SGLang 0.5.12: veRL 0.9.1, Python 3.11 and 3.12, Linux x86-64, CUDA 13.
# As of {day}; constraints/lock.py makes it; sglang.overrides.txt gives the exceptions.
# Install with: bash scripts/setup_gpu.sh sglang (or pip --no-deps: with dependencies, pip refuses the exceptions).
"""
DOORS = """\
# Other trainers, for examples/: Python 3.11 and 3.12, in an environment of its own. Made by lock.py.
# pip install --constraint constraints/doors.txt -e '.[doors]'
"""
LIGHT = """\
# pip install --constraint constraints/{lock} -e '.{extra}'
# Python 3.11 and 3.12; the versions of cpu.txt. Made by lock.py.
"""
DAY, GPU_DAY = "2025-10-15", "2026-11-17"
FOR_PAPER = "constraints/paper.in --overrides constraints/paper.overrides.txt --extra paper"
FOR_PAPER += f" --python-version 3.11 --exclude-newer {DAY}T23:59:59Z --no-strip-extras"
FOR_GPU = f"--extra gpu --python-version 3.11 --exclude-newer {GPU_DAY}T23:59:59Z --no-strip-extras"
FOR_SGLANG = FOR_GPU.replace("gpu", "sglang") + " --overrides constraints/sglang.overrides.txt"
FOR_LIGHT = "--constraint constraints/cpu.txt --python-version 3.11"
LOCKS = {
    "paper.txt": (PAPER.format(day=DAY), FOR_PAPER),
    "gpu.txt": (GPU.format(day=GPU_DAY), FOR_GPU),
    "sglang.txt": (SGLANG.format(day=GPU_DAY), FOR_SGLANG),
    "doors.txt": (DOORS, "--extra doors --python-version 3.11"),
    "core.txt": (LIGHT.format(lock="core.txt", extra=""), FOR_LIGHT),
    **{
        f"{extra}.txt": (LIGHT.format(lock=f"{extra}.txt", extra=f"[{extra}]"), f"{FOR_LIGHT} --extra {extra}")
        for extra in ("sandbox", "serve", "data", "hf", "api")
    },
}
"""Header and options of each lock."""


def main(check: bool) -> None:
    """See the module."""
    for name, (header, options) in LOCKS.items():
        with tempfile.NamedTemporaryFile("r", suffix=".txt") as made:
            command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "pyproject.toml", *options.split()]
            command += ["--quiet", "--no-annotate", "--no-header", "--upgrade", "--output-file", made.name]
            subprocess.run(command, cwd=ROOT, check=True)
            text = header + Path(made.name).read_text()
        lock = ROOT / "constraints" / name
        if check and lock.read_text() != text:
            sys.exit(f"lock.py: error: constraints/{name} is not what lock.py gives; run python constraints/lock.py")
        lock.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    main(parser.parse_args().check)
