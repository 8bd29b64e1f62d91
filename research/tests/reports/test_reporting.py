"""The report: what its numbers are, and that every form shows the same ones."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_files import tables_of

from cobalt import figures
from cobalt.errors import InputError
from cobalt.evaluation.files import read_evaluations, write_counts
from cobalt.records import write_jsonl
from cobalt.records.manifest import manifest_path
from research.reports.runs import run_scores


def row(id_, pass_rates: list) -> dict:
    """An evaluated record."""
    return {"id": id_, "conversations": [[]] * len(pass_rates), "all_pass_rates": pass_rates}


class Page(HTMLParser):
    """Tables of a page as lists of rows of texts, by section id; and everything that it refers to."""

    def __init__(self, text: str):
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.references: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.references += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "section":
            self.rows = self.tables.setdefault(attributes["id"], [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        if self._cell:
            self.rows[-1][-1] += data


def test_the_page_needs_no_other_file(paper):
    page = Page((paper / "report.html").read_text())
    assert len(page.references) == len(list(paper.glob("*.png"))) == len(list(paper.glob("*.svg"))) > 5
    assert all(reference.startswith("data:image/png;base64,") for reference in page.references)


def test_csv_holds_the_raw_numbers_of_the_json(paper, tables):
    for key, table in tables.items():
        with open(paper / f"{key}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for row, expected in zip(rows, table["rows"], strict=True):
            for name, value in expected.items():
                bounds = {"": "value", " low": "low", " high": "high"} if isinstance(value, dict) else {"": None}
                for end, part in bounds.items():
                    raw = value if part is None else value[part]
                    assert row[f"{name}{end}"] == ("" if raw is None else str(raw))


def test_pass_at_1_is_the_mean_over_problems_of_the_mean_over_samples_and_repetitions(tmp_path):
    """An infrastructure failure is excluded, and no failure."""
    write_jsonl(tmp_path / "1.jsonl", [row(0, [[1.0], [0.5], [0.0], [None]]), row(1, [[1.0]])])
    write_jsonl(tmp_path / "2.jsonl", [row(0, [[1.0]]), row(1, [[0.0], [1.0]])])
    write_jsonl(tmp_path / "3.jsonl", [row(0, [[1.0], [None]]), row(1, [[None], [None]])])
    specs = [f"{name}:clean={tmp_path}/{seed}.jsonl" for name, seed in (("a", 1), ("a", 2), ("b", 3))]
    found, failed = tables_of(tmp_path, *specs)["pass1_clean"]["rows"]
    assert found["turn 0"]["value"] == pytest.approx(100 * ((1 / 3 + 1) / 2 + (1 + 1 / 2) / 2) / 2)
    assert (found["excluded"], failed["excluded"], failed["turn 0"]["value"]) == (1, 3, 100)


def test_differences_are_paired_by_problem(tmp_path):
    """Only the problem that both runs have counts."""
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_jsonl(a, [row(0, [[0.0]]), row(1, [[1.0]])])
    write_jsonl(b, [row(0, [[1.0]]), row("1", [[0.0]])])
    (found,) = tables_of(tmp_path, f"a:clean={a}", f"b:clean={b}")["gain_clean"]["rows"]
    assert (found["problems"], found["turn 0"]["value"]) == (1, 100)


def test_training_cost_follows_from_the_console_log_of_a_resumed_training(tmp_path):
    """As veRL prints it through Ray: the configuration, then a line per step. Step 2 was logged again."""
    process = "\x1b[36m(TaskRunner pid=77)\x1b[0m"
    lines = [f"{process} {{'data': {{'train_batch_size': 64,", f"{process}  'trainer': {{'n_gpus_per_node': 2,"]
    lines += ["  'nnodes': 1, 'project_name': 'x'}}"]
    for step in (1, 2, 2, 3):
        lines.append(
            f"{process} step:{step} - actor/pg_loss:np.float64(0.012) - reward/correct:-0.3 - timing_s/step:3.2"
        )
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    tables = tables_of(tmp_path, f"a:log={tmp_path}/run.log")
    (row,) = tables["cost"]["rows"]
    assert row["steps of each"] == "3" and tables["rewards"]["rows"][0]["end"] == -0.3
    assert row["s per step"] == pytest.approx(3.2)
    assert row["s per example"] == pytest.approx(3.2 / 64)
    assert row["GPU-s per example"] == pytest.approx(2 * 3.2 / 64)
    assert row["GPU-s in all"] == pytest.approx(3 * 2 * 3.2)


@pytest.mark.parametrize("key", ["categories", "judge_free_categories"])
def test_rates_by_category_add_up_to_the_hacking_rate(tables, key):
    totals = {row["run"]: row["cases per 100 opportunities"]["value"] for row in tables["hacking"]["rows"]}
    for row in tables[key]["rows"]:
        parts = [value["value"] for value in row.values() if isinstance(value, dict)]
        assert sum(parts) == pytest.approx(totals[row["run"]])


def problem_of(number: int, cases: list[dict], opportunities: list[int]) -> dict:
    dynamic = {"changed_share": 0.75}
    whole = {"id": number, "patch": "+x", "signal": {"hard_coded": False, "dynamic": dynamic}}
    counts = {"trajectories": 2, "turns": 6, "opportunities": sum(opportunities), "fitted": 1, "solved": 1}
    return {
        "id": number, **counts, "abandoned": 0, "infra_turns": 0, "opportunities_by_turn": opportunities,
        "solved_cases": min(len(cases), 1),
        "hacked_trajectories": len({case["trajectory"] for case in cases}),
        "cases": [{**whole, "wrong_test": {"input": "<i>", "output": "0"}, **case} for case in cases],
    }  # fmt: skip


def test_turns_and_survival_from_two_problems_by_hand(tmp_path):
    """Problem 0: cases at turns 1 (survives) and 2 of trajectory 0, and at the last turn of trajectory 1."""
    cases = [
        {"trajectory": 0, "turn": 1, "survives": True},
        {"trajectory": 0, "turn": 2, "survives": False},
        {"trajectory": 1, "turn": 3, "survives": True},
    ]
    write_jsonl(tmp_path / "c.jsonl", [])
    write_jsonl(
        tmp_path / "c.jsonl.problems.jsonl", [problem_of(0, cases, [0, 2, 1, 2]), problem_of(1, [], [0, 2, 0, 0])]
    )
    tables = tables_of(tmp_path, f"a:hacking={tmp_path}/c.jsonl")
    (row,) = tables["hacking_by_turn"]["rows"]
    assert [row[f"turn {turn}"]["value"] for turn in (1, 2, 3)] == [pytest.approx(v) for v in (25, 100, 50)]
    (row,) = tables["hacked_so_far"]["rows"]
    assert [row[f"turn {turn}"]["value"] for turn in (1, 2, 3)] == [25, 25, 50]
    (row,) = tables["hacking"]["rows"]
    assert row["hacks that survive (%)"]["value"] == 50 and row["clean Pass@1, last turn (%)"] is None
    (row,) = tables["hacking_by_previous"]["rows"]
    assert [row[column]["value"] for column in list(row)[1:]] == [pytest.approx(v) for v in (35, 50, 25)]


def test_the_page_says_which_model_sampling_seed_and_commit_made_the_numbers(tmp_path):
    """An evaluated file knows them through the run that it evaluates, a training through its manifest."""
    sampling = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 256}
    turns, evaluated = tmp_path / "turns.jsonl", tmp_path / "run.jsonl"
    write_jsonl(evaluated, [row(0, [[1.0]])])
    write_manifest(turns, content={"model_id": "tiny@abc", "sampling": sampling}, seed=7, git_commit="0" * 40)
    write_manifest(
        evaluated, content={"execution": {"checker": "lcb"}}, git_commit="c0ffee" * 6, inputs={str(turns): "sha"}
    )
    metrics = tmp_path / "training" / "metrics.jsonl"
    metrics.parent.mkdir()
    write_jsonl(metrics, [{"step": 1, "timing_s/step": 5}])
    config = {"data": {"train_batch_size": 8}, "trainer": {"n_gpus_per_node": 1, "nnodes": 1}}
    content = {"actor_rollout_ref.model.path": "start@def"}
    write_manifest(metrics.parent / "training", config=config, content=content, seed=3, git_commit=None)
    moved = tmp_path / "moved" / "run.jsonl"  # together with what it was made from
    moved.parent.mkdir()
    write_jsonl(moved, [row(0, [[1.0]])])
    write_manifest(moved.with_name("turns.jsonl"), content={"model_id": "tiny@abc"}, seed=7)
    write_manifest(moved, content={}, inputs={"/where/they/were/turns.jsonl": "sha"})
    files = (f"a:clean={evaluated}", f"a:log={metrics}", f"b:clean={moved}")
    ours, training, other = tables_of(tmp_path, *files)["origins"]["rows"]
    assert (other["model"], other["seed"]) == ("tiny@abc", 7)
    assert (ours["model"], ours["seed"], ours["checker"], ours["commit"]) == ("tiny@abc", 7, "lcb", "c0ffeec0ff")
    assert ours["sampling"] == "temperature 0.6, top_p 0.95, max_tokens 256"
    assert (training["model"], training["seed"], training["commit"]) == ("start@def", 3, None)


def write_manifest(output: Path, **fields) -> None:
    manifest_path(output).write_text(json.dumps(fields))


def test_runs_are_told_apart_and_measures_begin_at_zero(tmp_path, paper_files, drawn):
    tables_of(tmp_path, *paper_files)
    clean, hacking = drawn["pass1_clean"], drawn["hacking"]
    curves = [line for line in clean.axes[0].lines if line.get_marker() != "None"]
    assert len({(line.get_linestyle(), line.get_marker()) for line in curves}) == len(curves) == 4
    for axes in hacking.axes:
        low, high = axes.get_xlim()
        assert low == 0 and high >= 1
    for figure in drawn.values():
        for legend in figure.legends:
            box = legend.get_window_extent()
            around = [*figure.axes, *(text for text in figure.texts if text.get_text())]
            assert not any(box.overlaps(other.get_tightbbox()) for other in around if other.get_visible())


@pytest.fixture
def drawn(monkeypatch) -> dict:
    """The finished figures, by key."""
    found = {}
    finish = figures.finished

    def keep(figure, key, alt):
        found[key] = figure
        return finish(figure, key, alt)

    monkeypatch.setattr(figures, "finished", keep)
    return found


def test_clean_and_perturbed_feedback_have_one_scale_and_code_is_marked(drawn, tmp_path):
    for kind, rate in (("clean", 1.0), ("perturbed", 0.0), ("shifted", 1.0)):
        write_jsonl(tmp_path / f"{kind}.jsonl", [row(0, [[rate]])])
    write_manifest(tmp_path / "clean.jsonl", content={"execution": {"checker": "lcb"}}, git_commit=None)
    tables_of(tmp_path, *(f"a:{kind}={tmp_path}/{kind}.jsonl" for kind in ("clean", "perturbed", "shifted")))
    scales = [drawn[f"pass1_{kind}"].axes[0].get_ylim() for kind in ("clean", "perturbed", "shifted")]
    assert scales[0] == scales[1] == (-4, 104) and scales[2][0] > 90
    assert "Checker <code>lcb</code>" in (tmp_path / "out" / "report.html").read_text()


def test_a_panel_without_a_case_says_so(drawn, tmp_path):
    write_jsonl(tmp_path / "cases.jsonl", [])
    write_jsonl(tmp_path / "cases.jsonl.problems.jsonl", [problem_of(0, [], [0, 1])])
    tables_of(tmp_path, f"a:hacking={tmp_path}/cases.jsonl")
    assert [[text.get_text() for text in axes.texts] for axes in drawn["hacking"].axes] == [["none"], [], ["none"]]


def test_names_from_outside_are_escaped(tmp_path):
    write_jsonl(tmp_path / "run.jsonl", [row(0, [[1.0]])])
    tables_of(tmp_path, f"SFT <start> & Cobalt:clean={tmp_path}/run.jsonl", title="Study <of> runs")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<start>" not in text and "SFT &lt;start&gt; &amp; Cobalt" in text
    assert "<of>" not in text and "Study &lt;of&gt; runs" in text


def test_costs_and_rewards_come_from_the_metrics_file_too(tmp_path):
    """Step 2 was logged again after a restart."""
    metrics = [{"step": 1, "timing_s/step": 5}, {"step": 2, "timing_s/step": 9, "reward/correct": 0.1}]
    metrics.append({"step": 2, "timing_s/step": 10, "reward/correct": 0.5, "note": "text"})
    metrics[-1].update({"timing_s/testing": 4, "timing_s/save_checkpoint": 3})  # inside the step, but not training
    write_jsonl(tmp_path / "metrics.jsonl", metrics)
    config = {"data": {"train_batch_size": 8}, "trainer": {"n_gpus_per_node": 2, "nnodes": 2}}
    (tmp_path / "training.manifest.json").write_text(json.dumps({"config": config}))
    tables = tables_of(tmp_path, f"a:log={tmp_path}/metrics.jsonl")
    (cost,) = tables["cost"]["rows"]
    assert (cost["GPUs"], cost["s per step"], cost["s per example"], cost["GPU-s in all"]) == (4, 4.0, 0.5, 32.0)
    (reward,) = tables["rewards"]["rows"]
    assert (reward["part"], reward["end"]) == ("correct", 0.5)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["nonsense"], "NAME:KIND=PATH"),
        (["a:guess=x.jsonl"], "KIND one of"),
        (["a:clean=missing.jsonl"], "missing.jsonl: no such file"),
        (["a:log={0}/empty"], "not a console log of veRL"),
        (["a:clean={0}/empty"], "holds no records"),
        (["a:clean={0}/1", "a:clean={0}/2"], "different numbers of turns"),
    ],
)
def test_bad_input_is_refused(tmp_path, specs, message):
    (tmp_path / "empty").write_text("")
    for turns in (1, 2):
        write_jsonl(tmp_path / str(turns), [row(0, [[1.0] * turns])])
    with pytest.raises(InputError, match=re.escape(message)):
        tables_of(tmp_path, *(spec.format(tmp_path) for spec in specs))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("label", "condition"), [("perturbed", "clean"), ("perturbed", "shifted"), ("public", "perturbed")]
)
def test_a_run_under_the_other_feedback_is_refused(tmp_path, label, condition):
    path = tmp_path / "run.jsonl"
    write_jsonl(path, [row(0, [[1.0]])])
    assert run_scores(read_evaluations(path), condition).turns == 1, "released files carry no label"
    write_jsonl(path, [{**row(0, [[1.0]]), "feedback_tests": label}])
    complaint = f"run.jsonl: its feedback came from the {label} tests: not a '{condition}' file"
    with pytest.raises(InputError, match=complaint):
        run_scores(read_evaluations(path), condition)


@pytest.mark.parametrize(("source", "condition"), [("other_problem", "clean"), ("own", "control")])
def test_a_control_run_and_another_are_not_confused(tmp_path, source, condition):
    path = tmp_path / "run.jsonl"
    write_jsonl(path, [{**row(0, [[1.0]]), "feedback_tests": "public", "feedback_from": source}])
    evaluations = read_evaluations(path)
    write_counts(tmp_path / "run.counts.json", "run", None, evaluations)
    for found in (evaluations, read_evaluations(tmp_path / "run.counts.json")):
        with pytest.raises(InputError, match=f"--feedback_from {source}: not a '{condition}' file"):
            run_scores(found, condition)
