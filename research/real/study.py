#!/usr/bin/env python3
"""One arm of the study with one seed, on one GPU: trained, merged, asked on the test problems, counted (STUDY.md).

    python research/real/study.py --arm cobalt --seed 0 --model DIR --data DIR --out DIR

DATA holds ``dev.jsonl``, ``test.jsonl``, ``perturbed.jsonl``, ``rft.jsonl``, ``dpo.jsonl``, and the parquet of
``contexts/``, ``repairing/``, ``wrong_10/``, ``wrong_25/`` and ``problems/``; STUDY.md says which commands make them.
Each stage is done once in OUT/ARM-SEED, so a second call goes on where the first was stopped, or asks other problems.
``done/`` holds the seconds that a stage took. Of a training's checkpoints the merged model stays.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.cli.entry import exit_codes
from cobalt.errors import InputError, SetupError, root_cause
from cobalt.records.identity import model_identity
from cobalt.records.training_run import saved_steps
from cobalt.serving.ports import free_port
from cobalt.serving.proxies import keep_loopback_direct
from research.plans.places import Folder, Place

ARMS = {
    "base": ("", ""),
    "rft": ("rft", "rft.jsonl"),
    "dpo": ("dpo", "dpo.jsonl"),
    "cobalt": ("grpo_multi_turn", "contexts/train.parquet"),
    "repairing": ("grpo_multi_turn", "repairing/train.parquet"),
    "wrong_10": ("grpo_multi_turn", "wrong_10/train.parquet"),
    "wrong_25": ("grpo_multi_turn", "wrong_25/train.parquet"),
    "single_turn": ("grpo_single_turn", "problems/train.parquet"),
    "grpo_online": ("grpo_online", "problems/train.parquet"),
    "verpo_online": ("verpo_online", "problems/train.parquet"),
}
"""Name: recipe (scripts/train_*.sh), and what it learns from, in DATA."""
AS_A_USER = ("--stop_at_success", "--num_turns", 2)
ASKED = {
    "dev": ("dev", None, AS_A_USER),
    "test": ("test", None, AS_A_USER),
    "perturbed": ("perturbed", 2, ("--feedback_tests", "perturbed", "--num_turns", 2)),
    "long": ("test", 1, ("--num_turns", 8)),
}
"""Name: problems of DATA, how many samples of each (None: ``--samples``), and how they are asked."""
SAMPLING = ("--temperature", 0.6, "--top_p", 0.95, "--max_tokens", 768)
WITHOUT_END = 1_000_000
"""Epochs of a training that its budget ends."""
ONLY_THE_MODEL = {
    "rft": ("trainer.save_freq=-1", "checkpoint.save_contents=[model]"),
    "dpo": ("save_total_limit=1", "save_only_model=true"),
}
ONLY_THE_POLICY = (f"trainer.save_freq={WITHOUT_END}", "actor_rollout_ref.actor.checkpoint.save_contents=[model]")
"""The last checkpoint, and no optimizer in it, as nothing goes on from it: a third of the disk."""
SERVER = ("--max-model-len", 16384, "--max-num-seqs", 512)
REQUESTS = 640  # in flight: what the engine runs at a time and a quarter more
ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm"
SHARE = 0.1
"""Of a GPU's memory that must be free when an engine starts whose cache has a given size."""


class ArmPlace(Place):
    """Where an arm is trained and measured."""

    def __init__(self, folder: Folder, settings: argparse.Namespace) -> None:
        super().__init__(folder, {"PRESET": settings.preset, "EXECUTOR": "local"})
        self.settings, self.out = settings, folder.path
        self.executor = ("--executor", "local", "--executor_args", settings.executor_args)

    def train(self, recipe: str, data: Path) -> None:
        settings = self.settings
        knobs = {"MODEL": str(settings.start), "OUTPUT_DIR": str(self.out / "training"), "TRAIN_FILE": str(data)}
        usual = [f"{'seed' if recipe == 'dpo' else 'trainer.seed'}={settings.seed + 1}"]
        if recipe in ONLY_THE_MODEL:
            usual += ONLY_THE_MODEL[recipe]
            knobs["PRESET"] = "cpu" if settings.preset == "cpu" else "gpu"
        else:
            knobs["VAL_FILE"] = str(data.with_name("test.parquet"))  # not used
            usual = [f"trainer.total_epochs={WITHOUT_END}", f"+data.seed={settings.seed}", *ONLY_THE_POLICY]
            usual += ["trainer.val_before_train=False", "trainer.test_freq=-1"]
            if settings.steps is not None:
                usual.append(f"trainer.total_training_steps={settings.steps}")
            else:
                usual.append(f"cobalt.budget={{gpu_seconds: {settings.gpu_seconds}}}")
            if settings.kv_gib is not None:
                usual.append(f"+{ENGINE}.kv_cache_memory_bytes={settings.kv_gib << 30}")
                usual.append(f"actor_rollout_ref.rollout.gpu_memory_utilization={SHARE}")
        self.call("bash", f"scripts/train_{recipe}.sh", *usual, *settings.overrides, knobs=knobs)

    @contextmanager
    def served(self, model: Path) -> Iterator[str]:
        """The address of vLLM's own server of this model."""
        port = free_port()
        words = [self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1"]
        words += ["--port", port, "--served-model-name", model_identity(str(model)), "--generation-config", "vllm"]
        words += ["--uvicorn-log-level", "warning", *SERVER]
        if self.settings.kv_gib is not None:
            words += ["--kv-cache-memory-bytes", self.settings.kv_gib << 30, "--gpu-memory-utilization", SHARE]
        log_file = self.log_dir / "vllm.log"
        with log_file.open("w") as log:
            options = {"env": self.environment, "stdout": log, "stderr": log}
            server = self.folder.start([str(word) for word in words], is_service=True, **options)
        try:
            while not answers(f"http://127.0.0.1:{port}/health"):
                if server.poll() is not None:
                    reason = root_cause(log_file.read_text(errors="replace"))
                    raise SetupError(f"vLLM did not start: {reason or 'its log says why'} (log: {log_file})")
                time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            self.folder.wait(server)

    def ask(self, model: Path) -> None:
        """Conversations about the test problems, which end as a user's would; then some under wrong feedback."""
        with self.served(model) as address:
            where = ("--api_base", address, "--max_in_flight", REQUESTS, *self.executor)
            usual = ("--from_scratch", "--seed", 0, *SAMPLING, *where)
            for name in self.settings.ask:
                problems, samples, flags = ASKED[name]
                flags = ("-n", samples or self.settings.samples, *flags)
                files = ("-i", self.settings.data / f"{problems}.jsonl", "-o", self.out / f"{name}.turns.jsonl")
                self.stage(f"{name}-turns", self.run, "run_multi_turn_vllm.py", *files, *flags, *usual)


def answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5):
            return True
    except (URLError, OSError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", required=True, choices=ARMS)
    for name in ("--model", "--data", "--out"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the training data")
    parser.add_argument("--start", type=Path, help="the policy that training starts from; default: --model")
    parser.add_argument("--name", help="the folder's name before the seed; default: the arm")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--gpu_seconds", type=int, default=480, help="of the steps of a GRPO training")
    length.add_argument("--steps", type=int, help="of a GRPO training, instead of --gpu_seconds")
    parser.add_argument("--kv_gib", type=int, help="GiB of vLLM's cache: for several arms on one GPU")
    asked = ["test", "perturbed"]
    parser.add_argument("--ask", nargs="+", choices=ASKED, default=asked, help=f"default: {' '.join(asked)}")
    parser.add_argument("--samples", type=int, default=4, help="of each problem of dev and test; default: 4")
    parser.add_argument("--executor_args", default="", help="of the sandboxes that run answers, e.g. 'workers=8'")
    parser.add_argument("--preset", default="one-gpu-coder")
    parser.add_argument("overrides", nargs="*", help="hydra overrides of the training, after --")
    settings = parser.parse_args()
    settings.data, settings.out = settings.data.resolve(), settings.out.resolve()
    settings.start = (settings.start or settings.model).resolve()
    recipe, data = ARMS[settings.arm]
    problems = [settings.data / f"{ASKED[name][0]}.jsonl" for name in settings.ask]
    for needed in (settings.model, settings.start, *problems, *([settings.data / data] if recipe else [])):
        if not needed.exists():
            raise InputError(f"{needed}: no such file or folder")
    folder = Folder(settings.out / f"{settings.name or settings.arm}-{settings.seed}")
    free = ("out", "data", "ask", "executor_args")
    kept = {name: str(value) for name, value in vars(settings).items() if name not in free}
    folder.keep_settings(str(kept))
    folder.enter()
    keep_loopback_direct()
    place = ArmPlace(folder, settings)
    model = settings.model.resolve()
    if recipe:
        model = folder.path / "model"
        place.stage("train", place.train, recipe, settings.data / data)
        place.stage("merge", place.call, "bash", "scripts/merge_checkpoint.sh", folder.path / "training", model)
        for checkpoint in saved_steps(folder.path / "training").values():
            shutil.rmtree(checkpoint)  # 8 GB at 0.5B
    place.stage(f"{'-'.join(settings.ask)}-asked", place.ask, model)
    for name in settings.ask:
        files = ("-i", folder.path / f"{name}.turns.jsonl", "-o", folder.path / f"{name}.jsonl")
        place.script_stage(f"{name}-hidden", "eval_multi_turn.py", *files, *place.executor)
    if "perturbed" not in settings.ask:
        return
    files = ("-i", folder.path / "perturbed.jsonl", "-o", folder.path / "cases.jsonl")
    files += ("--data_file", settings.data / "perturbed.jsonl")
    place.script_stage("cases", "extract_turn_level_errors.py", *files)


if __name__ == "__main__":
    with exit_codes():
        main()
