# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle: it says what the places say."""

import math

import pytest

import turbolane
from turbolane import _native, evaluation


@pytest.fixture(autouse=True)
def few_places(monkeypatch) -> None:
    places = [place for place in turbolane.places() if place[0] in ("openssl-speed", "thesis-nginx-low")]
    monkeypatch.setattr(_native, "places", lambda: places)


def test_the_baseline_scores_one() -> None:
    result = turbolane.evaluate("fair")
    assert (result.score, result.worst_pct) == (1.0, 0.0)
    assert not any(result.table["held_out"])


def test_a_score_is_the_mean_over_places() -> None:
    result = turbolane.evaluate("lane:wide=1", loads="all")
    by_place = {}
    for row in result.table.rows():
        by_place.setdefault((row["scenario"], row["machine"]), []).append(math.log1p(row["change_pct"] / 100))
    means = [sum(logs) / len(logs) for logs in by_place.values()]
    assert result.score == pytest.approx(math.exp(sum(means) / len(means)))
    assert result.worst_pct == min(result.table["change_pct"])
    held_out = turbolane.evaluate("lane:wide=1", loads="held-out")
    assert 0 < len(held_out.table) < len(result.table)
    assert all(held_out.table["held_out"])


def test_a_group_that_starves_scores_nothing() -> None:
    ratios = [{"a": 1.0, "b": 0.0}]
    result = evaluation._judged("lane", "fair", [("s", "m", False)], ratios)
    assert (result.score, result.worst_pct, result.worst_at) == (0.0, -100.0, ("s", "m", "b"))


def test_bad_input() -> None:
    with pytest.raises(turbolane.InputError, match="tuned, held-out, all"):
        turbolane.evaluate("lane", loads="some")
    with pytest.raises(turbolane.InputError, match="nosuch"):
        turbolane.evaluate("nosuch")
    with pytest.raises(turbolane.InputError, match="no place"):
        _native.place_speeds("sfma-nginx", "xeon-w-2104", "fair")
