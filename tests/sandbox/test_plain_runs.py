"""Programs that nobody judges: their whole output, and the files in their working folder."""

from places import report


def test_programs_are_run_for_what_they_print(place):
    found = report(*place.arguments, "--scenario", "unjudged")
    assert found.pop("left") == [], "files go with their program"
    printed = "some words 5 ['data', 'helper.py'] {}\nnot written\nnot written\n"
    assert [output[:4] for output in found["files"]] == [["passed", printed.format(text), "", 0] for text in "12"]
    assert [output[1] for output in found["no files"]] == ["False\n"]
    assert [output[:2] for output in found["one turn"]] == [["passed", "a" * 1000 + "\n"]]
    assert [(output[0], output[3]) for output in found["alone"]] == [("time_limit", -9)]
    loud = ["runtime_error", "x" * (3 << 20) + "\n", "y", 3]
    assert [output[:4] for output in found["loud"]] == [loud, loud], "until they have printed what one test may"
    assert [(output[0], output[3]) for output in found["memory"]] == [("memory_limit", 137)]
    for name in ("no text", "control characters"):
        assert [(output[0], len(output[1])) for output in found[name]] == [("output_limit", 1 << 16)]
    assert [output[0] for output in found["much text"]] == ["passed"]
    assert found["refused"] == ["no files: File name too long", True]
    assert [(output[0], output[3]) for output in found["no Python"]] == [("compile_error", 1)] * 2
    assert "SyntaxError" in found["no Python"][1][2]
