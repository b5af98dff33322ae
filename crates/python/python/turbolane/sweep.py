# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps: every combination of scenarios, machines, numbers of packages, variants, policies and seeds.

::

    scenarios x machines x packages x variants x policies x seeds  ->  tasks
    tasks not yet in the folder  ->  engine (threads, ray, serial)  ->  rows  ->  folder, Table

Tasks share nothing and are deterministic, so that a task may run twice (a node died) and its
result is still the same; only this process writes results, each once.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, TypeVar, Union

from turbolane import _native
from turbolane._native import Machine, Scenario
from turbolane.engines import Engine, engine_of
from turbolane.errors import InputError
from turbolane.results import COLUMNS
from turbolane.simulation import Name, machine_of, scenario_of
from turbolane.store import Store
from turbolane.table import Table
from turbolane.work import Task

Scenarios = Union[Scenario, Name, Sequence[Union[Scenario, Name]]]
Named = TypeVar("Named", Scenario, Machine)
Machines = Union[Machine, Name, Sequence[Union[Machine, Name]]]
Packages = Union[int, Iterable[int], None]


def sweep(
    scenarios: Scenarios,
    machines: Optional[Machines] = None,
    policies: Union[str, Sequence[str]] = ("fair", "lane"),
    *,
    variants: Sequence[Optional[str]] = (None,),
    seeds: Iterable[int] = (1,),
    packages: Packages = None,
    duration_ns: Optional[int] = None,
    skip_misfits: bool = False,
    engine: Union[str, Engine] = "threads",
    workers: Optional[int] = None,
    folder: Optional[Name] = None,
    progress: Optional[bool] = None,
) -> Table:
    """Simulate every combination; a table with a row for each load of each simulation.

    scenarios, machines: names, files or objects; without machines, each scenario's own.
    packages: a number of packages of each machine, or several; each scenario's own without.
    skip_misfits: leave out scenarios on machines that are too small, instead of refusing them.
    engine: ``threads`` of this process, ``ray`` (the cluster that ``ray.init`` was called for, or
        one of this machine), or ``serial``.
    workers: threads, or simulations at a time with Ray; as many as there are CPUs without.
    folder: keep results there as Parquet; a sweep that was interrupted goes on where it was.
    progress: a bar on standard error; without a value, if that is a terminal.

    Raises :class:`InputError` before anything runs if something cannot be used. Ctrl-C ends the
    sweep, and what is finished is in the folder.
    """
    tasks = _tasks(scenarios, machines, policies, variants, seeds, packages, duration_ns, skip_misfits)
    chosen = engine_of(engine, workers)
    if folder is None:
        rows: List[Dict[str, Any]] = []
        for _, result in _with_progress(chosen.run(tasks), len(tasks), 0, progress):
            rows.extend(result)
        return _table(rows, tasks)
    with Store(folder) as store:
        store.check(tasks)
        done = store.done()
        missing = [task for task in tasks if task.key() not in done]
        finished = len(tasks) - len(missing)
        for task, result in _with_progress(chosen.run(missing), len(tasks), finished, progress):
            store.add(task, result)
        store.flush()
        return _table(store.rows(), tasks)


def _tasks(
    scenarios: Scenarios,
    machines: Optional[Machines],
    policies: Union[str, Sequence[str]],
    variants: Sequence[Optional[str]],
    seeds: Iterable[int],
    packages: Packages,
    duration_ns: Optional[int],
    skip_misfits: bool,
) -> List[Task]:
    """All combinations, each once, checked."""
    policies = [policies] if isinstance(policies, str) else list(policies)
    for policy in policies:
        _native.check_policy(policy)
    variants, seeds = list(variants), list(seeds)
    given = [packages] if packages is None or isinstance(packages, int) else list(packages)
    loads = _distinct("scenarios", map(scenario_of, _several(scenarios)), lambda scenario: scenario.name)
    own = machines is None
    on = [] if own else _distinct("machines", map(machine_of, _several(machines)), lambda machine: machine.id)
    tasks: List[Task] = []
    known: Set[str] = set()
    for scenario in loads:
        for machine in [machine_of(scenario.machine)] if own else on:
            for size in (scenario.packages if size is None else size for size in given):
                misfit = scenario.misfit(machine, size)
                if misfit and skip_misfits:
                    continue
                if misfit:
                    raise InputError(
                        f"scenario {scenario.name} does not fit on {machine.id} with packages={size}",
                        misfit,
                        "leave the machine or that number of packages out, or skip_misfits=True",
                    )
                for variant, policy, seed in itertools.product(variants, policies, seeds):
                    _check_variant(scenario, variant)
                    task = Task(scenario, machine, policy, variant, size, seed, duration_ns)
                    if task.key() not in known:
                        known.add(task.key())
                        tasks.append(task)
    if not tasks:
        raise InputError("there is nothing to simulate", "no combination is left", "name more of each")
    return tasks


def _check_variant(scenario: Scenario, variant: Optional[str]) -> None:
    if variant is not None and variant not in scenario.variants:
        raise InputError(
            f'scenario {scenario.name} has no variant "{variant}"',
            f"it has {', '.join(scenario.variants)}",
            "choose variants that all scenarios have",
        )


def _distinct(kind: str, given: Iterable[Named], name: Callable[[Named], str]) -> List[Named]:
    """Each once. Results are known by name, so two of one name cannot be distinguished."""
    found: Dict[str, Named] = {}
    for thing in given:
        known = found.setdefault(name(thing), thing)
        if known.to_toml() != thing.to_toml():
            raise InputError(
                f"two {kind} are called {name(thing)}", "their texts differ", "give one another name"
            )
    return list(found.values())


def _several(given: Any) -> List[Any]:
    """One thing, or several."""
    one = isinstance(given, (str, Scenario, Machine)) or hasattr(given, "__fspath__")
    return [given] if one else list(given)


def _table(rows: List[Dict[str, Any]], tasks: List[Task]) -> Table:
    """The rows of these tasks, in their order."""
    order = {task.key(): at for at, task in enumerate(tasks)}
    rows = [row for row in rows if Task.key_of(row) in order]
    rows.sort(key=lambda row: order[Task.key_of(row)])
    return Table.from_rows(rows, COLUMNS)


def _with_progress(results: Iterable[Any], total: int, done: int, progress: Optional[bool]) -> Iterable[Any]:
    from tqdm import tqdm

    # tqdm's own rule: None shows no bar where standard error is no terminal
    disable = None if progress is None else not progress
    return tqdm(results, total=total, initial=done, disable=disable, unit="run", smoothing=0.05)
