# SPDX-License-Identifier: MIT OR Apache-2.0
"""How good a policy is over all built-in loads and machines: the oracle for changes of a policy.

A third of the loads and machines is held out: no constant of the policy may be chosen by what comes
out for these.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from turbolane import _native
from turbolane.engines import cpus
from turbolane.errors import InputError
from turbolane.table import Table

LOADS = ("tuned", "held-out", "all")


class Evaluation(NamedTuple):
    """What came out."""

    policy: str
    baseline: str
    # Geometric mean of the speeds against the baseline: 1.02 is 2 % faster.
    score: float
    # The slowest group of tasks of any place against the baseline, percent.
    worst_pct: float
    # Where that was: scenario, machine, group.
    worst_at: Tuple[str, str, str]
    # A row for each group of each place: scenario, machine, held_out, load, change_pct.
    table: Table


def evaluate(
    policy: str = "lane",
    *,
    baseline: str = "fair",
    loads: str = "tuned",
    workers: Optional[int] = None,
) -> Evaluation:
    """Simulate a policy and the baseline on every built-in load and machine, and compare.

    loads: ``tuned`` (those that constants may be chosen on), ``held-out`` (the others), ``all``.
    A load's speed is the geometric mean over its groups' completions per second; the score is the
    geometric mean over places (a load on a machine). The baseline is simulated once per process.
    """
    if loads not in LOADS:
        raise InputError(
            f'there are no loads "{loads}"', f"there are {', '.join(LOADS)}", "choose one of them"
        )
    for each in (policy, baseline):
        _native.check_policy(each)
    places = [place for place in _native.places() if loads == "all" or place[2] == (loads == "held-out")]

    def compared(place: Tuple[str, str, bool]) -> Dict[str, float]:
        scenario, machine, _ = place
        base, own = _speeds(scenario, machine, baseline), _speeds(scenario, machine, policy)
        return {group: own.get(group, 0.0) / speed for group, speed in base.items()}

    with ThreadPoolExecutor(max_workers=workers or cpus()) as pool:
        ratios = list(pool.map(compared, places))
    return _judged(policy, baseline, places, ratios)


def _judged(
    policy: str, baseline: str, places: List[Tuple[str, str, bool]], ratios: List[Dict[str, float]]
) -> Evaluation:
    rows: List[Dict[str, Any]] = [
        {
            "scenario": scenario,
            "machine": machine,
            "held_out": held_out,
            "load": group,
            "change_pct": 100.0 * (ratio - 1.0),
        }
        for (scenario, machine, held_out), by_group in zip(places, ratios)
        for group, ratio in by_group.items()
    ]
    worst = min(rows, key=lambda row: row["change_pct"])
    means = [_geometric(list(by_group.values())) for by_group in ratios]
    return Evaluation(
        policy=policy,
        baseline=baseline,
        score=_geometric(means),
        worst_pct=worst["change_pct"],
        worst_at=(worst["scenario"], worst["machine"], worst["load"]),
        table=Table.from_rows(rows, ["scenario", "machine", "held_out", "load", "change_pct"]),
    )


def _geometric(values: List[float]) -> float:
    """The geometric mean; 0 if one is 0."""
    if min(values) <= 0.0:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


@cache
def _speeds(scenario: str, machine: str, policy: str) -> Dict[str, float]:
    return _native.place_speeds(scenario, machine, policy)[0]
