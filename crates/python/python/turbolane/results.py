# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of a sweep, one for each load of each simulation, and their comparison with a baseline."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from turbolane._native import Run
from turbolane.errors import InputError
from turbolane.table import Table

# What identifies a simulation.
KEY = ("scenario", "machine", "policy", "variant", "packages", "seed")
OF_LOAD = (
    "wide",
    "work",
    "work_per_s",
    "cpu_per_work_ns",
    "mean_khz",
    "reduced_frac",
    "starts_per_s",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p999_ns",
)
OF_RUN = ("simulated_ns", "busy_frac", "migrations_per_s", "energy_j")
COLUMNS = (*KEY, "load", *OF_LOAD, *OF_RUN)


def rows(run: Run) -> List[Dict[str, Any]]:
    """A row for each load of a simulation."""
    of_run = {name: getattr(run, name) for name in (*KEY, *OF_RUN)}
    return [
        {**of_run, "load": load.name, **{name: getattr(load, name) for name in OF_LOAD}} for load in run.loads
    ]


def compare(table: Table, baseline: str = "fair") -> Table:
    """The table of a sweep with a column ``change_pct``: work per second against the baseline.

    The baseline is a policy of the sweep; each row is compared with the same load, machine,
    variant and seed under it. ``None`` where the load has no work. Raises :class:`InputError` if
    the sweep has no such policy.
    """
    if baseline not in table["policy"]:
        known = ", ".join(sorted(set(table["policy"])))
        raise InputError(f'cannot compare with "{baseline}"', f"the table has {known}", "choose one of them")
    all_rows = list(table.rows())
    same = [name for name in (*KEY, "load") if name != "policy"]

    def place(row: Dict[str, Any]) -> Tuple[Any, ...]:
        return tuple(row[name] for name in same)

    base = {place(row): row["work_per_s"] for row in all_rows if row["policy"] == baseline}

    def change(row: Dict[str, Any]) -> Optional[float]:
        own, other = row["work_per_s"], base.get(place(row))
        return None if other is None else 100.0 * ((own or 0.0) / other - 1.0)

    columns = {name: table[name] for name in table.names}
    return Table({**columns, "change_pct": [change(row) for row in all_rows]})
