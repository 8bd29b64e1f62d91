"""The tables of the real model's wordings, from counts by problem and turn."""

from cobalt.records.jsonl import read_json
from research.real.counts import FILE, rows
from research.real.problems import divided


def test_shares_are_of_the_right_answers_and_useful_problems_are_solved_by_some():
    columns = ["answers", "right", "public", "submitted", "no_program", "tokens"]

    def run(rights):
        counts = [[[4, right, 0, 0, 0, 0]] for right in rights]
        return {"model": "a", "stage": {"name": "again", "turns": 1}, "columns": columns, "counts": counts}

    some, all_ = run([3, 1]), run([4, 4])
    assert (divided(some, ["x", "y"])[0], sorted(divided(all_, ["x", "y"])[1])) == (["x", "y"], ["x", "y"])
    of_some, of_all = rows([some, all_])
    assert (of_some[3].split()[0], of_all[3].split()[0]) == ("50.0", "100.0")
    assert (
        of_some[-2].split()[0] == "50.0" and of_all[-2] == ""
    )  # (1 * 3/3 + 3 * 1/3) of 4 wrong answers; no wrong ones


def test_the_chosen_wording_keeps_its_figures():
    runs = read_json(FILE)["runs"]
    (run,) = (one for one in runs if (one["model"][-4:], one["stage"]["name"]) == ("1.5b", "comment-then-fresh"))
    _, chosen, *_ = rows([run])
    assert [cell.split()[0] for cell in (chosen[3], chosen[5])] == ["33.3", "0.2"]
