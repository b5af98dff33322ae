# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps on a Ray cluster of several nodes (on this machine), of which one dies."""

import time

import pytest

import turbolane
from turbolane import engines, work

from conftest import SHORT_NS

ray = pytest.importorskip("ray")

ARGS = {
    "scenarios": ["thesis-nginx", "openssl-speed"],
    "machines": ["core-i9-7940x", "xeon-gold-6130"],
    "seeds": range(1, 16),
    "duration_ns": SHORT_NS,
}
RUNS = 2 * 2 * 2 * 15


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": 80 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    yield made, [made.add_node(num_cpus=2, object_store_memory=80 << 20) for _ in range(2)]
    ray.shutdown()
    made.shutdown()


class Watched(engines.Ray):
    """Kills a node after some results."""

    def __init__(self, cluster, node) -> None:
        super().__init__(workers=4)
        self.cluster, self.node, self.seen = cluster, node, []

    def run(self, tasks):
        for task, rows in super().run(tasks):
            self.seen.append(task.key())
            if len(self.seen) == RUNS // 3:
                self.cluster.remove_node(self.node, allow_graceful=False)
            yield task, rows


def test_every_result_comes_once_though_a_node_dies(cluster, tmp_path) -> None:
    made, nodes = cluster
    ray.init(address=made.address, log_to_driver=False)
    engine = Watched(made, nodes[1])
    table = turbolane.sweep(**ARGS, engine=engine, folder=tmp_path)
    assert len(engine.seen) == len(set(engine.seen)) == RUNS
    wait_for(lambda: len([node for node in ray.nodes() if node["Alive"]]) == 2)
    assert list(table.rows()) == list(turbolane.sweep(**ARGS).rows())
    assert list(turbolane.sweep(**ARGS, engine="serial", folder=tmp_path).rows()) == list(table.rows())


def wait_for(holds) -> None:
    """Ray notices a dead node by heartbeats that do not come."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_workers_that_cannot_simulate_are_told(cluster, monkeypatch) -> None:
    made, _ = cluster
    ray.init(address=made.address, log_to_driver=False)
    monkeypatch.setattr(engines, "run_batch", _of_another_version)
    with pytest.raises(turbolane.InputError, match="the sweep is of 0.0.1"):
        turbolane.sweep(**ARGS, engine="ray")
    monkeypatch.setattr(engines, "run_batch", _without_the_package)
    with pytest.raises(turbolane.InputError, match="No module named 'turbolane'"):
        turbolane.sweep(**ARGS, engine="ray")


def _of_another_version(tasks, _version):
    return work.run_batch(tasks, "0.0.1")


def _without_the_package(_tasks, _version):
    raise ModuleNotFoundError("No module named 'turbolane'")
