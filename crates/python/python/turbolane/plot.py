# SPDX-License-Identifier: MIT OR Apache-2.0
"""Charts (altair): the colours are those of the command's HTML reports.

Each function returns an ``altair.Chart``, which a notebook shows and ``chart.save(file)`` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turbolane.errors import InputError
from turbolane.evaluation import Evaluation
from turbolane.table import Table, needed

if TYPE_CHECKING:
    import altair

    from turbolane._native import Run

# Colours of levels 0 to 3.
LEVELS = ("#d8dee6", "#f2b441", "#d8552b", "#8b1a4a")
BETTER, WORSE = "#2f7ebc", "#d8552b"


def changes(compared: Table) -> altair.Chart:
    """Work per second against the baseline, by load and policy: bars, a row per scenario and machine.

    Takes what :func:`turbolane.compare` returns; seeds become a mean.
    """
    alt = needed("altair")
    compared["change_pct"]
    bars = alt.Chart(_data(alt, compared)).mark_bar()
    return bars.encode(
        x=alt.X("mean(change_pct):Q", title="change of work per second, %"),
        y=alt.Y("policy:N", title=None),
        color=alt.condition(alt.datum.mean_change_pct < 0, alt.value(WORSE), alt.value(BETTER)),
        row=alt.Row("load:N", title=None),
        column=alt.Column("machine:N", title=None),
        tooltip=[
            "scenario:N",
            "machine:N",
            "load:N",
            "policy:N",
            alt.Tooltip("mean(change_pct):Q", format="+.1f"),
        ],
    )


def levels(run: Run) -> altair.Chart:
    """Licence level of each core over time, of a run that was recorded (``record_ns``)."""
    if run.levels is None:
        raise InputError(
            "there is nothing to draw", "the run was not recorded", "simulate(..., record_ns=20_000_000)"
        )
    alt = needed("altair")
    bars = alt.Chart(_data(alt, run.levels)).transform_calculate(
        start="datum.start_ns / 1e6", end="datum.end_ns / 1e6"
    )
    scale = alt.Scale(domain=list(range(len(LEVELS))), range=list(LEVELS))
    return bars.mark_bar().encode(
        x=alt.X("start:Q", title="time, ms", scale=alt.Scale(zero=False)),
        x2="end:Q",
        y=alt.Y("core:O", title="core"),
        color=alt.Color("level:O", title="licence level", scale=scale),
        tooltip=["core:O", "level:O", "clock_khz:Q"],
    )


def heat_map(evaluation: Evaluation) -> altair.Chart:
    """The slowest group of each load on each machine against the baseline."""
    alt = needed("altair")
    cells = alt.Chart(_data(alt, evaluation.table)).mark_rect()
    scale = alt.Scale(domainMid=0, range=[WORSE, "#ffffff", BETTER])
    return cells.encode(
        x=alt.X("machine:N", title=None),
        y=alt.Y("scenario:N", title=None),
        color=alt.Color("min(change_pct):Q", title="change, %", scale=scale),
        tooltip=["scenario:N", "machine:N", alt.Tooltip("min(change_pct):Q", format="+.1f")],
    )


def _data(alt: Any, table: Table) -> Any:
    return alt.Data(values=list(table.rows()))
