"""Markdown tables, and numbers as a person reads them."""

from cobalt.statistics import Estimate
from cobalt.tables import in_percent, markdown_table, show
from research.reports.page import Table


def test_a_pipe_in_a_cell_starts_no_column() -> None:
    assert markdown_table(["a|b"], [["x|y"], [""]]) == "| a\\|b |\n| --- |\n| x\\|y |\n|  |"


def test_a_section_holds_title_note_and_table() -> None:
    table = Table("k", "Title", "Note.", ("n", "rate"), [[2, Estimate(50.0, 12.34, 80.0)], [None, 0.12345]])
    assert table.to_markdown_section() == (
        "## Title\n\nNote.\n\n| n | rate |\n| --- | --- |\n| 2 | 50.0 [12.3, 80.0] |\n| – | 0.123 |"
    )


def test_percent_scales_value_and_interval() -> None:
    assert in_percent(Estimate(0.5, 0.25, 0.75)) == Estimate(50, 25, 75)
    assert in_percent(Estimate(0.5, None, None)) == Estimate(50, None, None)
    assert in_percent(None) is None


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert show(Estimate(-0.04, -1.26, 0.01)) == "0.0 [-1.3, 0.0]"
