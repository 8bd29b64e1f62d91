"""The benchmark of collection: the engine gets the requests that the server got."""

import json
import sys
from types import SimpleNamespace

import pytest
from api_server import api_server
from in_process import exit_code
from transformers import AutoTokenizer

from benchmarks import bench_collection
from benchmarks.harness import ROOT
from cobalt.errors import SetupError
from cobalt.prompts import prompt_tokens
from cobalt.records import write_jsonl

ONE, TWO = {"inputs": [""], "outputs": ["1"]}, {"inputs": ["", "a"], "outputs": ["1", "1"]}
TESTS = {"test_cases": TWO, "public_test_cases": ONE, "hidden_test_cases": {"inputs": ["a"], "outputs": ["1"]}}
MODEL = ROOT / "assets/minicoder"


def test_generate_gets_the_requests_of_the_collection(tmp_path, monkeypatch, capsys):
    tokenizer, asked, made = AutoTokenizer.from_pretrained(MODEL), [], []

    class Engine:
        def __init__(self, **settings):
            made.append(settings["max_num_seqs"])

        def get_tokenizer(self):
            return tokenizer

        def reset_prefix_cache(self): ...

        def generate(self, prompts, sampling):
            asked.extend(zip([prompt["prompt_token_ids"] for prompt in prompts], sampling, strict=True))
            return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1] * 7)]) for _ in prompts]

    def here(words, cwd, check):
        """The command in this process."""
        python, script, *arguments = words
        assert (python, cwd, check) == (sys.executable, ROOT, False)
        return SimpleNamespace(returncode=exit_code(cwd / script, script, *arguments))

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Engine, SamplingParams=dict))
    monkeypatch.setattr(bench_collection, "subprocess", SimpleNamespace(run=here))
    problem = {"id": "one", "question": "Print 1.", "instruction": "Print 1.", **TESTS}
    write_jsonl(tmp_path / "problems.jsonl", [problem])
    common = {"model": MODEL, "input_file": tmp_path / "problems.jsonl", "samples": 2, "num_turns": 1, "rounds": 1}
    with api_server(lambda body, attempt: ("ok", {"text": "```python\nprint(2)\n```"})) as server:
        config = bench_collection.CollectionBenchConfig(
            **common, api_base=server.base, output=tmp_path / "figures.json"
        )
        bench_collection.main(config)
        bodies = server.bodies
    of_server = [(prompt_tokens(tokenizer, body["messages"]), body["seed"], body["max_tokens"]) for body in bodies]
    of_engine = [(prompt, settings["seed"], settings["max_tokens"]) for prompt, settings in asked]
    assert len(of_engine) == 8 and sorted(of_engine) == sorted(of_server)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| LLM.generate |")]
    assert row.endswith(" | 1.00 |")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [sample["tokens"] for sample in figures["collection"]] == [28]
    with pytest.raises(SetupError, match="the collection ended with 3"):
        bench_collection.main(config)  # there is no server any more
    assert made == [512]  # and no engine starts for it
