"""Preference optimisation on stored answers: its tokens, what it refuses, and a training that is killed."""

import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from killed_recipes import killed_and_resumed
from online_parts import MODEL, ROOT
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import INTEGRATION_TO_CALLBACK

from cobalt.errors import InputError
from cobalt.prompts import feedback_message, first_messages, prompt_tokens
from cobalt.records import write_jsonl
from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, read_metrics
from cobalt.training import dpo
from cobalt.training.dpo import DpoConfig, encoded_pairs, main, parsed
from cobalt.training.dpo_worker import Record, TokenPairs


def pair(number):
    messages = first_messages(f"Print the number {number}.")
    if number % 2:
        messages += [{"role": "assistant", "content": "```python\nprint(0)\n```"}, feedback_message("Input:\n0")]
    rejected = f"```python\nprint(-{number})\n```\nNo." if number != 6 else ""  # a model may answer nothing
    answers = {"chosen": f"```python\nprint({number})\n```", "rejected": rejected}
    return {"example_id": number, "conversation": messages, **answers}


@pytest.fixture
def pairs(tmp_path):
    write_jsonl(path := tmp_path / "dpo.jsonl", map(pair, range(8)))
    return path


def dpo_config(pairs, *settings, **flags):
    """Of a training on CPU cores into the folder ``out`` beside the pairs."""
    usual = {"model": str(MODEL), "train_file": pairs, "output_dir": pairs.with_name("out"), "preset": "cpu"}
    return DpoConfig(**usual | flags, settings=settings)


def test_tokens_are_those_that_are_served_and_long_pairs_are_left_out(pairs):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    found, left_out = encoded_pairs(pairs, tokenizer, 1000)
    assert left_out == 0 and len(found) == 8
    for row, tokens in zip(map(pair, range(8)), found, strict=True):
        assert tokens["prompt_ids"] == prompt_tokens(tokenizer, row["conversation"])
        for name in ("chosen", "rejected"):
            *text, end = tokens[f"{name}_ids"]
            assert tokenizer.decode(text) == row[name] and end == tokenizer.eos_token_id
    lengths = sorted(len(tokens["prompt_ids"] + tokens["rejected_ids"]) for tokens in found)
    found, left_out = encoded_pairs(pairs, tokenizer, lengths[3])
    assert 0 < left_out == sum(length > lengths[3] for length in lengths)


def test_a_text_that_no_tokenizer_takes_is_named(pairs):
    write_jsonl(pairs, [{**pair(0), "rejected": "\ud800"}])
    with pytest.raises(InputError, match=r"dpo.jsonl: line 1: "):
        encoded_pairs(pairs, AutoTokenizer.from_pretrained(MODEL), 1000)


def test_prompts_are_rendered_as_they_were_served_and_passes_accumulated(pairs, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.chat_template += "{{ end }}"
    monkeypatch.setattr(dpo, "load_tokenizer", lambda _: tokenizer)
    begun = []

    def begin(_manifest, _begun, _steps, _worker, work, *_):
        work = json.loads(work)
        begun.append((Dataset.load_from_disk(work["pairs"]), work["settings"]))

    monkeypatch.setattr(dpo, "train_in_processes", begin)
    main(dpo_config(pairs, 'apply_chat_template_kwargs={"end": "So:"}', "per_device_train_batch_size=2"))
    ((found, settings),) = begun
    assert all(tokenizer.decode(ids).endswith("So:") for ids in found["prompt_ids"])
    assert dpo.TEMPLATE not in settings, "TRL does not know it"
    assert (settings["gradient_accumulation_steps"], settings["report_to"]) == (4, "none")
    spelled = [dpo_config(pairs, f"{dpo.TEMPLATE}={text}") for text in ('{"end":"So:"}', '{"end": "So:"}')]
    assert dpo.settings_of(spelled[0]) == dpo.settings_of(spelled[1]), "a resumed run may spell it otherwise"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("apply_chat_template_kwargs=[]", "apply_chat_template_kwargs: expected an object"),
        ("betta=1", "no such setting of TRL's DPOConfig; did you mean beta"),
        ("beta=x", "invalid float"),
        ("beta", "settings are NAME=VALUE"),
        ("gradient_accumulation_steps=2", "follows from other settings"),
        ("warmup_steps=5", "warmup_steps=5 has no effect with lr_scheduler_type=constant"),
        ("train_batch_size=0", "an integer above 0"),
        ("train_batch_size=12", "a multiple of per_device_train_batch_size=8"),
        ("train_batch_size=16", "holds only 8 pairs"),
        ("max_length=10", "holds only 0 pairs"),
    ],
)
def test_what_would_fail_or_be_ignored_is_refused(pairs, setting, reason):
    with pytest.raises(InputError, match=reason):
        main(dpo_config(pairs, setting))
    assert not (pairs.parent / "out").exists()


def test_steps_between_checkpoints_take_the_place_of_epochs(pairs):
    def settings(*given):
        return dpo.settings_of(dpo_config(pairs, *given, preset="gpu"))

    assert settings()["save_strategy"] == "epoch"
    assert settings("save_steps=3")["save_strategy"] == "steps"
    with pytest.raises(InputError, match="save_steps=3 has no effect with save_strategy=epoch"):
        settings("save_steps=3", "save_strategy=epoch")
    settings("warmup_steps=3", "lr_scheduler_type=constant_with_warmup")


@pytest.mark.parametrize("logger", ["file", "rl_insight", "vemlp_wandb"])
def test_a_logger_of_verl_that_trl_has_not_is_refused(pairs, logger):
    assert set(dpo.LOGGERS) <= INTEGRATION_TO_CALLBACK.keys()
    with pytest.raises(InputError, match=f"LOGGER names {logger}: choose wandb, mlflow, "):
        main(dpo_config(pairs, loggers=(logger,)))


def test_a_checkpoint_of_the_model_alone_is_never_gone_on_from(pairs, monkeypatch):
    monkeypatch.setattr(dpo, "train_in_processes", lambda manifest, *_: manifest.start())

    def train(*settings):
        main(dpo_config(pairs, "max_steps=3", *settings))

    train("save_only_model=true")
    out = pairs.with_name("out")
    (out / dpo.CHECKPOINT.format(2)).mkdir()
    (out / TRACKER_NAME).write_text("2")
    with pytest.raises(InputError, match=r"save_only_model=true: no training goes on without its optimizer"):
        train("save_only_model=true")
    with pytest.raises(InputError, match=r"other settings \(.*save_only_model"):
        train()
    train("save_only_model=true", "max_steps=2")  # finished already


def test_dry_run_prints_the_settings_checks_and_starts_nothing(pairs, capsys):
    knobs = {"PRESET": "cpu", "TRAIN_FILE": str(pairs), "OUTPUT_DIR": str(pairs.with_name("out"))}
    knobs["MODEL"] = os.path.relpath(MODEL, ROOT)
    command = ["bash", "scripts/train_dpo.sh", "--dry-run", "beta=0.3"]
    environment = {**os.environ, "PYTHON": sys.executable, **knobs}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert shown["model"] == {"path": str(MODEL)}, "what cobalt merge finds from any folder"
    assert (shown["trl"]["beta"], shown["trl"]["max_length"]) == ("0.3", "1184")
    assert shown["data"] == {"train_files": str(pairs), "train_batch_size": 8}
    missing = pairs.with_name("none.jsonl")
    with pytest.raises(InputError, match=f"^{missing}: no such file$"):
        main(dpo_config(missing, check=True))
    assert json.loads(capsys.readouterr().out)["data"]["train_files"] == str(missing), "settings are shown all the same"
    assert [path.name for path in pairs.parent.iterdir()] == [pairs.name]


def test_the_first_loss_is_ln_2_since_reference_and_policy_have_one_precision(pairs):
    """Exactly, where both are padded alike."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    settings = {**dpo.PRESETS["cpu"], "bf16": "true", "per_device_train_batch_size": "1", "report_to": "none"}
    del settings[dpo.PAIRS]
    data, args = Dataset.from_list(encoded_pairs(pairs, tokenizer, 1000)[0]), parsed(settings, pairs.parent / "out")
    trainer = TokenPairs(str(MODEL), args=args, train_dataset=data, processing_class=tokenizer)
    model = trainer.accelerator.prepare_model(trainer.model)
    for row in trainer.train_dataset:
        assert trainer.compute_loss(model, trainer.data_collator([row])).item() == pytest.approx(math.log(2), abs=1e-6)


def test_a_model_of_nan_is_not_trained_on(tmp_path):
    """Hugging Face's trainer tells a loss of 0 then, and saves the model."""
    record, state = Record(tmp_path), SimpleNamespace(is_world_process_zero=True, global_step=5)
    record.on_log(None, state, None, logs={"loss": 0.69, "grad_norm": 17.2})
    state.global_step = 6
    with pytest.raises(FloatingPointError, match="step 6: not finite: train/grad_norm"):
        record.on_log(None, state, None, logs={"loss": 0.0, "grad_norm": math.nan})
    assert len(read_metrics(tmp_path / METRICS_FILE)) == 2


@pytest.mark.slow
def test_a_training_that_is_killed_takes_the_steps_of_a_plain_one(pairs):
    """The plain one: AdamW on the mean of -log sigmoid(beta (margin - reference's margin)) of all pairs."""
    steps, lr, beta = 10, 1e-4, 0.3
    settings = [f"learning_rate={lr}", f"beta={beta}", "train_batch_size=8", "per_device_train_batch_size=4"]
    settings += [f"max_steps={steps}", "save_steps=3"]
    found, merged = killed_and_resumed("scripts/train_dpo.sh", pairs, settings, 3)

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    rows, _ = encoded_pairs(pairs, AutoTokenizer.from_pretrained(MODEL), 1000)

    def margin(row):
        log_probs = []
        for response in (row["chosen_ids"], row["rejected_ids"]):
            logits = model(torch.tensor([row["prompt_ids"] + response])).logits[0, len(row["prompt_ids"]) - 1 : -1]
            log_probs.append(logits.log_softmax(-1)[torch.arange(len(response)), response].sum())
        return log_probs[0] - log_probs[1]

    with torch.no_grad():
        references = [margin(row) for row in rows]
    optimizer, expected = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01), []
    for _ in range(steps):
        margins = torch.stack([margin(row) - of_start for row, of_start in zip(rows, references, strict=True)])
        loss = -logsigmoid(beta * margins).mean()
        loss.backward()
        expected.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert found == pytest.approx(expected, rel=0.02, abs=1e-4)
    assert found[-1] < found[0] / 2

    trained = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    for name, weight in trained.named_parameters():
        assert torch.allclose(weight, model.get_parameter(name), atol=2e-3, rtol=0.01), name
