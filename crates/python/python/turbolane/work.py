# SPDX-License-Identifier: MIT OR Apache-2.0
"""One simulation of a sweep, as it travels to whoever runs it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from turbolane import _native
from turbolane._native import Machine, Scenario
from turbolane.errors import InputError
from turbolane.results import KEY, rows

Rows = List[Dict[str, Any]]


class Task(NamedTuple):
    """What is simulated."""

    scenario: Scenario
    machine: Machine
    policy: str
    variant: Optional[str]
    packages: int
    seed: int
    duration_ns: Optional[int]

    def key(self) -> str:
        """What identifies it in a sweep."""
        return Task.key_of(
            {
                "scenario": self.scenario.name,
                "machine": self.machine.id,
                "policy": self.policy,
                "variant": self.variant,
                "packages": self.packages,
                "seed": self.seed,
            }
        )

    @staticmethod
    def key_of(row: Mapping[str, Any]) -> str:
        """The key of the task that a row came from."""
        return "|".join(str(row[name]) for name in KEY)

    def run(self) -> Rows:
        """Simulates it."""
        return rows(
            _native.simulate(
                self.scenario,
                self.machine,
                self.policy,
                variant=self.variant,
                packages=self.packages,
                seed=self.seed,
                duration_ns=self.duration_ns,
            )
        )


def run_batch(tasks: Sequence[Tuple[int, Task]], version: str) -> List[Tuple[int, Rows]]:
    """Simulates several, on whatever machine; each with its number."""
    if version != _native.VERSION:
        raise InputError(
            "cannot take part in a sweep",
            f"this worker has turbolane {_native.VERSION}, the sweep is of {version}",
            "install the same wheel on every node",
        )
    return [(number, task.run()) for number, task in tasks]
