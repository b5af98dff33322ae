# SPDX-License-Identifier: MIT OR Apache-2.0
"""Group `predict` of `./x bench`: what sweeps cost, and how soon the package is there.

Prints an array of results as its last line. Times are of this machine; efficiencies compare runs of
the same simulations, one after the other and in parallel, in the same process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

import turbolane
from turbolane.engines import Ray, Serial, Threads

ROUNDS = 3
# Simulations of a round: 1,000, short ones, so that the cost of handing them out shows.
SWEEP: Dict[str, Any] = {
    "scenarios": ["thesis-nginx", "openssl-speed"],
    "machines": ["core-i9-7940x", "xeon-gold-6130"],
    "policies": ["fair", "lane"],
    "seeds": range(1, 126),
    "duration_ns": 600_000_000,
}
RUNS = 1000
RAY_WORKERS = 4


def timed(act: Callable[[], Any]) -> float:
    """Seconds."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def result(name: str, unit: str, better: str, values: List[float], baseline: Any = None) -> Dict[str, Any]:
    """A result from repeated measurements."""
    return {
        "name": name,
        "value": statistics.median(values),
        "unit": unit,
        "better": better,
        "n": len(values),
        "min": min(values),
        "max": max(values),
        "baseline": baseline,
    }


def imports() -> List[float]:
    """Milliseconds until the package is imported, without the interpreter's own start."""

    def start(code: str) -> float:
        return 1e3 * timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    start("import turbolane")
    return [start("import turbolane") - start("pass") for _ in range(7)]


def main() -> None:
    import ray

    cpus = len(os.sched_getaffinity(0))
    ray.init(num_cpus=RAY_WORKERS, include_dashboard=False, log_to_driver=False)
    threads: List[float] = []
    distributed: List[float] = []
    overhead_ms: List[float] = []
    # Workers start before they are timed.
    turbolane.sweep(**{**SWEEP, "seeds": range(1, 5)}, engine=Ray(RAY_WORKERS), progress=False)
    for _ in range(ROUNDS):
        one = timed(lambda: turbolane.sweep(**SWEEP, engine=Serial(), progress=False))
        many = timed(lambda: turbolane.sweep(**SWEEP, engine=Threads(), progress=False))
        far = timed(lambda: turbolane.sweep(**SWEEP, engine=Ray(RAY_WORKERS), progress=False))
        threads.append(one / (many * cpus))
        distributed.append(one / (far * min(cpus, RAY_WORKERS)))
        overhead_ms.append(1e3 * (far * min(cpus, RAY_WORKERS) - one) / RUNS)
        print(f"one {one:.1f} s, {cpus} threads {many:.1f} s, Ray {far:.1f} s", flush=True)
    ray.shutdown()
    results = [
        result("predict.sweep_efficiency.threads", "ratio", "higher", threads),
        result("predict.sweep_efficiency.ray", "ratio", "higher", distributed),
        result("predict.sweep_overhead_ms.ray", "ms", "lower", overhead_ms),
        result("predict.evaluate_s", "s", "lower", [timed(turbolane.evaluate)]),
        result("python.import_ms", "ms", "lower", imports()),
    ]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
