# SPDX-License-Identifier: MIT OR Apache-2.0
"""What wide code (AVX2, AVX-512, AMX) costs other code through lower clocks.

>>> import turbolane
>>> run = turbolane.simulate("thesis-nginx", policy="lane")
>>> run.loads[0].work_per_s

The command ``turbolane`` measures and changes machines; this package answers questions about
them: machines, scenarios, simulations (:func:`simulate`, :func:`sweep`, :func:`evaluate`), scans
(:func:`scan`) and recordings (:class:`Recording`). Tables are :class:`Table`; they become Arrow
tables, pandas and polars frames. Charts are in :mod:`turbolane.plot`.
"""

from turbolane._native import VERSION as __version__
from turbolane._native import (
    Load,
    Machine,
    Recording,
    Run,
    Scan,
    Scenario,
    machines,
    places,
    scan,
    scenarios,
)
from turbolane.errors import InputError
from turbolane.evaluation import Evaluation, evaluate
from turbolane.results import compare
from turbolane.simulation import simulate
from turbolane.sweep import sweep
from turbolane.table import Table

__all__ = [
    "Evaluation",
    "InputError",
    "Load",
    "Machine",
    "Recording",
    "Run",
    "Scan",
    "Scenario",
    "Table",
    "__version__",
    "compare",
    "evaluate",
    "machines",
    "places",
    "scan",
    "scenarios",
    "simulate",
    "sweep",
]
