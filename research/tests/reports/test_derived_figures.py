"""Figures that pages derive from several reports are what the script derives."""

import json

import pytest

from research.benchmarks import derived_figures


def rounded(record):
    return json.loads(record, parse_float=lambda number: round(float(number), 9))


def test_the_files_hold_what_is_derived():
    for path, tables in derived_figures.files().items():
        derived_anew = json.dumps({table.key: table.to_json() for table in tables})
        assert rounded(path.read_text()) == rounded(derived_anew), f"{path}: run research/benchmarks/derived_figures.py"


def test_the_prices_follow_from_the_bill():
    """By hand, from the sums that the page states."""
    training, online = 217.9 / 2560, (391.4 / 1685.33, 389.5 / 1792)
    collected = (0, 64.7 / 2560, 175.3 / 2560, 64.7 / (2 * 5828))
    ratios = [row[-2:] for row in derived_figures.price_table().rows]
    assert ratios[:4] == [[pytest.approx((training + more) / each, rel=1e-3) for each in online] for more in collected]
    assert ratios[4] == [None, pytest.approx(67.6 / 213.6)]


def test_a_mean_counts_each_training_once():
    rows = [
        {**{turn: {"value": 60.0} for turn in derived_figures.TURNS}, derived_figures.SEEDS: "61.0, 60.0, 59.0"},
        {**{turn: {"value": 80.0} for turn in derived_figures.TURNS}, derived_figures.SEEDS: "80.0"},
    ]
    assert derived_figures.turn_means(rows) == [65.0] * 9
    assert derived_figures.last_turns(rows) == [61, 60, 59, 80]
