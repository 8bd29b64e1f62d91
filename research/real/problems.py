#!/usr/bin/env python3
"""The problems of the study: the archive is unpacked, imported with ``cobalt data import``, and divided.

    python research/real/problems.py --size 0.5b --problems problems.tar.xz --data DATA

Writes DATA/useful.jsonl, which the model of this size solves in 1 to 7 of 8 first answers (``counts.json.gz``);
DATA/dev.jsonl, 400 of those that it solves always or never, to choose settings on; DATA/test.jsonl, in the order of
``study/``; and DATA/functions.jsonl, those of them whose public tests the study perturbs. What each import kept, and
why it dropped what, is beside its file in DATA/imported. A second run goes on.
"""

import argparse
import lzma
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.cli.entry import exit_codes
from cobalt.errors import InputError
from cobalt.evaluation.files import read_evaluations
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.jsonl import read_json
from research.plans.places import ROOT, StageError
from research.real.counts import FILE

LEARNED = ("train", "train_leetcode")
ASKED = ("eval_mbpp", "eval_humaneval", "eval_leetcode", "eval_stdin")
SETS = {"useful": LEARNED, "dev": LEARNED, "test": ASKED, "functions": ASKED}
"""Output: files of the archive."""
DEV = 400
ORDER = Path(__file__).with_name("study") / "base.counts.json.gz"


def divided(run: Mapping[str, Any], ids: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Problems that some first answers solve and some do not; and ``DEV`` of the others, by the hash of their ids."""
    of = [dict(zip(run["columns"], by_turn[0], strict=False)) for by_turn in run["counts"]]
    useful = [id_ for id_, counts in zip(ids, of, strict=True) if 0 < counts["right"] < counts["answers"]]
    others = sorted(set(ids) - set(useful), key=lambda id_: sha256(str(id_).encode()).digest())
    return useful, others[:DEV]


def chosen(size: str) -> dict[str, list[Any]]:
    """Ids by output."""
    stored = read_json(FILE)
    (run,) = (r for r in stored["runs"] if r["stage"]["name"] == "train" and r["model"].endswith(size))
    (base,) = read_evaluations(ORDER)
    useful, dev = divided(run, stored["ids"][run["ids"]])
    test = [problem.id for problem in base.problems]
    functions = [id_ for id_ in test if str(id_).startswith(("mbpp", "leetcode"))]
    return {"useful": useful, "dev": dev, "test": test, "functions": functions}


def imported(archive: Path, data: Path, executor_args: str) -> Path:
    """The folder of ``archive``'s sets, each as ``cobalt data import`` makes it. Raises ``CobaltError``."""
    unpacked, folder = data / "unpacked", data / "imported"
    names = sorted({f"{name}.jsonl" for names in SETS.values() for name in names})
    try:
        unpacked.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:  # extractall knows no filter before Python 3.11.4
            for name in names:
                if (file := packed.extractfile(name)) is None:
                    raise tarfile.TarError(f"{name} is no file")
                (unpacked / name).write_bytes(file.read())
    except (OSError, tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, KeyError) as error:
        raise InputError(f"--problems {archive}: {error}") from None
    flags = ("--executor", "local", "--executor_args", executor_args, "--dev_size", "0", "--min_alphanumeric", "40")
    for name in names:
        files = (unpacked / name, "-o", folder / name)
        words = (sys.executable, "-m", "cobalt", "data", "import", "taco", *files, *flags)
        if code := subprocess.run(words, cwd=ROOT, check=False).returncode:
            raise StageError(f"the import of {name} has failed with {code}; see above", code)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", required=True, choices=("0.5b", "1.5b"))
    for name in ("--problems", "--data"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--executor_args", default="", help="of the sandboxes that verify references")
    args = parser.parse_args()
    data = args.data.resolve()
    folder = imported(args.problems, data, args.executor_args)
    for name, ids in chosen(args.size).items():
        problems = {row["id"]: row for file in SETS[name] for row in read_jsonl(folder / f"{file}.jsonl", ("id",))}
        if missing := [id_ for id_ in ids if id_ not in problems]:
            raise InputError(f"{folder} lacks {len(missing)} of the {len(ids)} {name} problems, {missing[0]} first")
        print(f"{name}: {write_jsonl(data / f'{name}.jsonl', map(problems.__getitem__, ids))} problems")


if __name__ == "__main__":
    with exit_codes():
        main()
