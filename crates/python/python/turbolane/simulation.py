# SPDX-License-Identifier: MIT OR Apache-2.0
"""One simulation; names of scenarios and machines will do for the objects."""

from __future__ import annotations

import os
from typing import Optional, Union

from turbolane import _native
from turbolane._native import Machine, Run, Scenario

Name = Union[str, "os.PathLike[str]"]


def scenario_of(given: Union[Scenario, Name]) -> Scenario:
    """The scenario itself, or the one of that name or file."""
    return given if isinstance(given, Scenario) else Scenario(given)


def machine_of(given: Union[Machine, Name]) -> Machine:
    """The machine itself, or the one of that name or file."""
    return given if isinstance(given, Machine) else Machine(given)


def simulate(
    scenario: Union[Scenario, Name],
    machine: Union[Machine, Name, None] = None,
    policy: str = "lane",
    *,
    variant: Optional[str] = None,
    packages: Optional[int] = None,
    seed: int = 1,
    duration_ns: Optional[int] = None,
    record_ns: Optional[int] = None,
) -> Run:
    """Simulate a scenario on a machine (the scenario's own without) under a policy.

    ``policy`` is what ``turbolane sim --policy`` takes, e.g. ``fair`` or ``lane:wide=2``. With
    ``record_ns``, that much time after the warm-up is recorded: ``run.runs`` and ``run.levels``.
    The same arguments give the same result. Raises :class:`InputError`.
    """
    loaded = scenario_of(scenario)
    return _native.simulate(
        loaded,
        machine_of(loaded.machine if machine is None else machine),
        policy,
        variant=variant,
        packages=packages,
        seed=seed,
        duration_ns=duration_ns,
        record_ns=record_ns,
    )
