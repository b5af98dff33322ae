# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who runs the tasks of a sweep: this process, its threads, or a Ray cluster."""

from __future__ import annotations

import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple, Union

from turbolane import _native
from turbolane.errors import InputError
from turbolane.work import Rows, Task, run_batch

Results = Iterator[Tuple[Task, Rows]]

# Simulations that travel to a Ray worker together, at most: a task of Ray costs about a
# millisecond (`./x bench predict`), a simulation some hundred.
BATCH_MAX = 8


class Engine(Protocol):
    """Runs tasks; yields each with its rows as soon as it is finished."""

    def run(self, tasks: Sequence[Task]) -> Results:
        """Runs them."""
        ...


class Serial:
    """One after the other."""

    def run(self, tasks: Sequence[Task]) -> Results:
        """Runs them."""
        for task in tasks:
            yield task, task.run()


class Threads:
    """Threads of this process: simulations do not hold Python's lock."""

    def __init__(self, workers: Optional[int] = None) -> None:
        self.workers = workers or cpus()

    def run(self, tasks: Sequence[Task]) -> Results:
        """Runs them."""
        if not tasks:
            return
        pool = ThreadPoolExecutor(max_workers=self.workers, thread_name_prefix="turbolane")
        waiting = iter(tasks)
        running: Dict[Future[Rows], Task] = {}
        try:
            while True:
                # Few are handed over at a time, so that few are left after an error or Ctrl-C.
                while len(running) < 2 * self.workers and (task := next(waiting, None)) is not None:
                    running[pool.submit(task.run)] = task
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    yield task, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class Ray:
    """A Ray cluster: the one that ``ray.init`` was called for, or this machine."""

    def __init__(self, workers: Optional[int] = None) -> None:
        self.workers = workers

    def run(self, tasks: Sequence[Task]) -> Results:
        """Runs them. Ray runs a batch again whose node died."""
        ray = _ray()
        if not ray.is_initialized():
            ray.init(num_cpus=self.workers, include_dashboard=False, log_to_driver=False)
        workers = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(num_cpus=1, max_retries=-1)(run_batch)
        batches = iter(_batches(tasks, workers))
        running: List[Any] = []
        try:
            while True:
                while len(running) < 2 * workers and (batch := next(batches, None)) is not None:
                    running.append(remote.remote(batch, _native.VERSION))
                if not running:
                    return
                finished, running = ray.wait(running)
                for number, rows in _result(ray, finished[0]):
                    yield tasks[number], rows
        finally:
            for ref in running:
                ray.cancel(ref, force=True)


def engine_of(given: Union[str, Engine], workers: Optional[int]) -> Engine:
    """The engine of that name, or the engine itself."""
    if workers is not None and workers < 1:
        raise InputError(f"cannot use {workers} workers", "a sweep needs one", "choose 1 or more")
    if not isinstance(given, str):
        return given
    if given == "threads":
        return Threads(workers)
    if given == "ray":
        return Ray(workers)
    if given == "serial":
        return Serial()
    raise InputError(f'there is no engine "{given}"', "there are threads, ray, serial", "choose one of them")


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _batches(tasks: Sequence[Task], workers: int) -> Iterator[List[Tuple[int, Task]]]:
    """Tasks with their numbers, so few together that all workers have some until the end."""
    size = max(1, min(BATCH_MAX, len(tasks) // (8 * workers)))
    for start in range(0, len(tasks), size):
        yield list(enumerate(tasks[start : start + size], start))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError("cannot use Ray", str(error), 'pip install "turbolane[ray]"') from error
    return ray


def _result(ray: Any, ref: Any) -> List[Tuple[int, Rows]]:
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise error.cause from None
        if isinstance(error.cause, ModuleNotFoundError) or "No module named 'turbolane'" in str(error):
            raise InputError(
                "a Ray worker cannot simulate",
                f"it has not the packages that it needs ({error.cause or 'no turbolane'})",
                'install the wheel on every node, or give ray.init a runtime_env with "pip"',
            ) from error
        raise
