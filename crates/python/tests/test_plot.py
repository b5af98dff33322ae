# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts hold the data that they are of."""

import pytest

import turbolane
from turbolane import evaluation

from conftest import SHORT_NS

plot = pytest.importorskip("turbolane.plot")
pytest.importorskip("altair")


def test_charts_are_valid_and_complete(tmp_path) -> None:
    compared = turbolane.compare(turbolane.sweep("thesis-nginx", duration_ns=SHORT_NS))
    run = turbolane.simulate("thesis-nginx", record_ns=1_000_000)
    judged = evaluation._judged("lane", "fair", [("s", "m", False)], [{"a": 1.1}])
    for chart, rows in (
        (plot.changes(compared), compared),
        (plot.levels(run), run.levels),
        (plot.heat_map(judged), judged.table),
    ):
        assert len(chart.to_dict()["data"]["values"]) == len(rows)
        chart.save(tmp_path / "chart.html")
        assert "vega" in (tmp_path / "chart.html").read_text()


def test_bad_input() -> None:
    with pytest.raises(turbolane.InputError, match="change_pct"):
        plot.changes(turbolane.Table({"policy": ["fair"]}))
    with pytest.raises(turbolane.InputError, match="record_ns"):
        plot.levels(turbolane.simulate("thesis-nginx", duration_ns=SHORT_NS))
