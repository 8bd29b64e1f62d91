"""Fine-tuning on stored answers: its tokens, what it refuses, and a training that is killed."""

import argparse
import pickle
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from killed_recipes import killed_and_resumed
from omegaconf import OmegaConf
from online_parts import MODEL, ROOT, overridden
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.errors import InputError, SetupError
from cobalt.prompts import feedback_message, first_messages, prompt_tokens
from cobalt.records import Manifest, read_jsonl, write_jsonl
from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, saved_steps
from cobalt.training import preflight, processes, rft_worker
from cobalt.training import rft as rft_module
from cobalt.training.hydra_main import composed, refuse_mistyped
from cobalt.training.preflight import as_list
from cobalt.training.processes import last_error, train_in_processes
from cobalt.training.resume import RANKS_FILE, fixed
from cobalt.training.rft import CONFIG_NAME, checked, refuse_ignored
from cobalt.training.rft_data import StoredAnswers

QWEN = (
    "{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- else %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{%- endif %}"
    "{%- for m in messages %}{%- if not (loop.first and m.role == 'system') %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
"""A template with a newline behind each end token, and a system message of its own."""


def example(number, turns=1):
    messages = first_messages(f"Print the number {number}.")
    for turn in range(turns):
        answer = {"role": "assistant", "content": f"<think>{turn}</think>\n```python\nprint({turn})\n```"}
        messages += [answer, feedback_message(f"Input:\n{turn}")]
    response = f"<think>It is {number}.</think>\n```python\nprint({number})\n```"
    return {"example_id": number, "conversation": messages, "response": response}


@pytest.fixture
def examples(tmp_path):
    write_jsonl(path := tmp_path / "rft.jsonl", (example(number, number % 3) for number in range(32)))
    return path


@cache
def recipe():
    return pickle.dumps(composed(["+rft=cpu"], ROOT / "verl/config", CONFIG_NAME))


def rft(examples, *overrides):
    """The composed configuration of a run, checked as far as its settings go."""
    folder = f"trainer.default_local_dir={examples.parent / 'out'}"
    config = overridden(recipe(), [f"data.train_files={examples}", f"model.path={MODEL}", folder, *overrides])
    refuse_mistyped(config, CONFIG_NAME)
    refuse_ignored(config)
    return config


@pytest.mark.parametrize("template", ["of the model", QWEN])
def test_tokens_are_those_that_are_served_and_the_loss_is_on_the_response_and_its_end(examples, template):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    if template == QWEN:
        tokenizer.chat_template = template
    found = StoredAnswers(str(examples), tokenizer, rft(examples).data)
    for row, tokens in zip(read_jsonl(examples, unique=None, fields=()), found, strict=True):
        prompt = prompt_tokens(tokenizer, row["conversation"])
        ids, mask = tokens["input_ids"].tolist(), tokens["loss_mask"].tolist()
        assert ids[: len(prompt)] == prompt and not any(mask[: len(prompt)])
        assert all(mask[len(prompt) :]) and ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(ids[len(prompt) : -1]) == row["response"]
        assert tokens["prompts"].tolist() + tokens["responses"].tolist() == ids


def test_a_text_that_no_tokenizer_takes_is_named(examples):
    row = example(0)
    row["conversation"][1]["content"] += "\ud800"
    write_jsonl(examples, [row])
    with pytest.raises(InputError, match=r"rft.jsonl: line 1: a text cannot be written as UTF-8"):
        StoredAnswers(str(examples), AutoTokenizer.from_pretrained(MODEL), rft(examples).data)


def test_prompts_are_rendered_as_they_were_served(examples):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.chat_template = QWEN + "{%- if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}"
    served = rft(examples, "+data.apply_chat_template_kwargs.enable_thinking=false")
    (tokens, *_), (other, *_) = (
        StoredAnswers(str(examples), tokenizer, config.data) for config in (served, rft(examples))
    )
    assert tokenizer.decode(tokens["prompts"]).endswith("assistant\n<think>\n\n</think>\n\n")
    assert tokenizer.decode(other["prompts"]).endswith("assistant\n")
    assert tokens["responses"].tolist() == other["responses"].tolist()


def test_the_merge_finds_a_tokenizer_that_was_given_from_another_folder(examples, tmp_path, monkeypatch):
    (tmp_path / "own").symlink_to(MODEL)
    monkeypatch.chdir(tmp_path)
    checked(config := rft(examples, "model.path=own", "model.tokenizer_path=own"))
    assert config.model.path == config.model.tokenizer_path == str(tmp_path / "own")


def test_a_tokenizer_of_an_older_manifest_is_where_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    old, now = (fixed({"model": {"tokenizer_path": path}}) for path in ("own", str(tmp_path / "own")))
    assert old == now != fixed({"model": {"tokenizer_path": "hub/own"}})


def test_long_examples_are_left_out_and_counted(examples, capsys):
    plan = checked(rft(examples, "data.max_length=180", "data.train_batch_size=4"))
    counts = plan.manifest.counts["train_files"]
    assert counts["examples"] + counts["left_out"] == 32 and counts["left_out"] > 0
    assert plan.per_epoch == counts["examples"] // 4 and plan.steps == 2 * plan.per_epoch
    assert f"{counts['left_out']} examples of data.train_files are left out" in capsys.readouterr().err


@pytest.mark.parametrize(("batch", "rest"), [(10, 2), (16, 0)])
def test_examples_whose_loss_is_not_measured_are_told(examples, capsys, batch, rest):
    """veRL's issue 7464."""
    checked(rft(examples, f"data.val_files={examples}", f"data.train_batch_size={batch}"))
    told = f"of the last {rest} examples of data.val_files no loss is measured: veRL 0.9.1 takes whole batches"
    assert (told in capsys.readouterr().err) == bool(rest)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("data.train_batch_size=33", "hold only 32 examples"),
        ("data.max_length=3000", "no room for an example"),
        ("data.truncation=left", "has no effect"),
        ("trainer.balance_batch=false", "has no effect"),
        ("optim.total_training_steps=9", "has no effect"),
        ("model.lora.alpha=64", "model.lora.alpha: veRL 0.9.1 reads it with Megatron alone; give model.lora_rank"),
        (
            "model.lora_adapter_path=/nowhere",
            "lora_adapter_path=/nowhere: no adapter, since /nowhere/adapter_config.js",
        ),
        ("model.tokenizer_path=/nowhere", "tokenizer_path=/nowhere: no such folder"),
        ("data.use_dynamic_bsz=false", "needs True"),
        ("checkpoint.save_contents=[optimizer]", "model is missing"),
        ("+checkpoint.save_lora_only=true", "cobalt merge needs the whole model"),
        ("trainer.nnodes=2", "needs 1"),
        ("trainer.test_freq=2", "needs data.val_files"),
        ("trainer.save_freq=often", "expected an integer"),
        ("trainer.n_gpus_per_node=3", "cannot be shared by 3 GPUs"),
        ("trainer.resume_mode=resume_path", "no such checkpoint"),
        ("trainer.total_epochs=0", "less than 1"),
        ("optim.lr=-1", "no learning rate"),
        ("optim.lr_scheduler_type=linear", "lr_scheduler_type=linear: choose constant, cosine"),
        ("+model.override_config.attention_dropout=0.1", "attention_dropout=0.1, and prompts cannot be shared with it"),
        (["model.lora_rank=8", "model.target_modules=[q_proj,lm_head]"], "cannot be shared with an adapter of lm_head"),
        (["model.lora_rank=8", "model.target_modules='.*(q_proj|lm_head)'"], "shared with an adapter of lm_head"),
        ("optim.betas=0.9", "optim.betas=0.9: give two numbers"),
        ("optim.betas=[0.9]", r"optim.betas=\[0.9\]: give two numbers"),
        ("model.path=/nowhere", "no such folder"),
        ("data.train_files=/nowhere.jsonl", "no such file"),
        ("data.train_files='~/data/gsm8k/train.parquet'", "missing: data.train_files=FILE; preproc/process_multi"),
    ],
)
def test_what_would_fail_or_be_ignored_is_refused(examples, override, reason):
    with pytest.raises(InputError, match=reason):
        checked(rft(examples, *as_list(override)))


def test_a_frequency_of_0_is_never(examples, monkeypatch):
    given = []
    monkeypatch.setattr(rft_module, "train_in_processes", lambda *settings: given.append(OmegaConf.create(settings[4])))
    rft_module.train(rft(examples, "trainer.save_freq=0", "trainer.test_freq=0"), set(), argparse.Namespace(log=None))
    assert (given[0].trainer.save_freq, given[0].trainer.test_freq) == (-1, -1), "veRL divides by it"


def test_a_disk_without_room_for_a_checkpoint_is_told_before_training(examples, monkeypatch):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=3e7))
    with pytest.raises(SetupError, match="a checkpoint takes more than"):
        checked(rft(examples))
    checked(rft(examples, "model.lora_rank=8"))  # the optimizer is an adapter's


def test_rows_of_another_file_are_refused(examples):
    write_jsonl(examples, [{**example(0), "response": ""}])
    with pytest.raises(InputError, match=r"line 1: field 'response'"):
        checked(rft(examples))


def test_a_checkpoint_of_the_model_alone_is_never_gone_on_from(examples):
    alone = ("checkpoint.save_contents=[model]", "trainer.total_training_steps=3")
    checked(rft(examples, *alone)).manifest.start()
    out = examples.parent / "out"
    for step in (2, 3):
        (out / f"global_step_{step}").mkdir()
        (out / f"global_step_{step}" / RANKS_FILE).write_text('{"world_size": 1, "FSDP_version": 2}')
    (out / TRACKER_NAME).write_text("3")
    checked(rft(examples, *alone))  # finished already
    (out / TRACKER_NAME).write_text("2")
    with pytest.raises(InputError, match=r"checkpoint\.load_contents=\[model\]: no training goes on from a checkpoint"):
        checked(rft(examples, *alone))


def test_the_worker_that_was_killed_is_named_and_not_what_the_others_say_of_it():
    """As ``torch.distributed.run`` tells of it."""
    others = "[rank0]: RuntimeError: [pair.cc:537] Connection closed by peer [127.0.0.1]:1\n"
    ends = "[1]:\n  traceback : Signal 15 (SIGTERM) received by PID 8\n"
    root = "Root Cause (first observed failure):\n[0]:\n  traceback : Signal 9 (SIGKILL) received by PID 7\n"
    assert last_error(others + ends + root).startswith("process 7 (a worker) was killed")
    root = "Root Cause (first observed failure):\n[0]:\n  traceback : To enable traceback see: ...\n"
    assert last_error(others + ends + root).startswith("RuntimeError: [pair.cc:537]")


def test_a_disk_that_was_full_for_a_worker_is_told_even_if_it_has_room_again(tmp_path, monkeypatch):
    torn = "[enforce fail at inline_container.cc:672] . unexpected pos 1240550528 vs 1240550416"
    (tmp_path / "tearing.py").write_text(f"raise RuntimeError({torn!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    manifest = Manifest(tmp_path / "training.manifest.json", "cobalt rft", {}, {}, [])
    manifest.output = tmp_path
    with pytest.raises(SetupError, match=r"unexpected pos .*train\.log\); make room, then run the same command again"):
        train_in_processes(manifest, 0, 1, "tearing", "", 1, {}, None)

    def printing(error):
        def start(_command, stdout, **_options):
            stdout.write(f"Traceback (most recent call last):\n{error}\n".encode())
            return SimpleNamespace(wait=lambda: 1, poll=lambda: 1)

        return start

    full = "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has 1 MiB is free. Process 7 has 3 GiB (https://a). If"
    for error, told in (
        ("OSError: [Errno 28] No space left on device: 'output'", r"device: 'output' .*; make room, then run the same"),
        (full, r"CUDA out of memory.* is free \(log: [^ ]*train\.log\); end what else uses"),
    ):
        monkeypatch.setattr(processes.subprocess, "Popen", printing(error))
        with pytest.raises(SetupError, match=told):
            train_in_processes(manifest, 0, 1, "a worker", "", 1, {}, None)


@pytest.fixture
def saver(tmp_path, monkeypatch):
    """A trainer of one process that has a checkpoint to save; ``body``: called when veRL has saved half of it."""

    def make(body=lambda: None):
        handler = SimpleNamespace(default_local_dir=str(tmp_path))

        def save(step):
            checkpoint = Path(handler.default_local_dir, f"global_step_{step}")
            checkpoint.mkdir()
            body()
            Path(handler.default_local_dir, TRACKER_NAME).write_text(str(step))

        def init(self, config):
            self.config, self.rank, self.resume_global_step, self.ckpt_handler = config, 0, 0, handler

        handler.save_checkpoint = save
        monkeypatch.setattr(rft_worker.sft_trainer.SFTTrainer, "__init__", init)
        monkeypatch.setattr(rft_worker.torch.distributed, "barrier", lambda: None)
        return rft_worker.RftTrainer(OmegaConf.create({"cobalt": {"keep_checkpoints": 1}})).ckpt_handler

    return make


def test_a_checkpoint_appears_whole_or_not_at_all(saver, tmp_path):
    (tmp_path / METRICS_FILE).touch()
    handler = saver()
    handler.save_checkpoint(step=2)
    handler.save_checkpoint(step=4)
    assert saved_steps(tmp_path) == {4: tmp_path / "global_step_4"} and handler.default_local_dir == str(tmp_path)
    with pytest.raises(ZeroDivisionError):
        saver(lambda: 1 / 0).save_checkpoint(step=6)
    assert saved_steps(tmp_path).keys() == {4} and (tmp_path / TRACKER_NAME).read_text() == "4"


@pytest.mark.slow
@pytest.mark.ci
def test_a_training_that_is_killed_at_the_end_of_an_epoch_takes_the_steps_of_a_plain_one(examples):
    """The plain one: AdamW on the mean cross-entropy of all response tokens of a batch, in the sampler's order."""
    batch, steps, lr, seed = 16, 10, 3e-4, 7
    settings = [f"optim.lr={lr}", f"trainer.total_training_steps={steps}", f"trainer.seed={seed}"]
    settings += [f"data.train_batch_size={batch}", "trainer.save_freq=6"]
    found, merged = killed_and_resumed("scripts/train_rft.sh", examples, settings, 6)  # an epoch has two steps

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rows = list(StoredAnswers(str(examples), tokenizer, rft(examples).data))
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01)
    expected = []
    while len(expected) < steps:
        generator = torch.Generator().manual_seed(seed + len(expected) // 2)
        for chosen in torch.randperm(len(rows), generator=generator).split(batch):
            tokens = sum(len(rows[i]["responses"]) for i in chosen)
            loss = 0.0
            for row in (rows[i] for i in chosen):
                logits = model(row["input_ids"][None]).logits[0, len(row["prompts"]) - 1 : -1]
                part = cross_entropy(logits, row["responses"], reduction="sum") / tokens
                part.backward()
                loss += part.item()
            expected.append(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    assert found == pytest.approx(expected, rel=0.01)
    assert found[-1] < found[0] / 2

    weights = load_file(merged / "model.safetensors")
    for name, weight in model.state_dict().items():
        if name in weights:
            assert torch.allclose(weights[name].float(), weight, atol=2e-3, rtol=0.01), name
