# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machines, scenarios and single simulations: the same figures as the command's."""

import json
import os
import pickle
import subprocess

import pytest

import turbolane


def test_a_machine_answers_with_its_file() -> None:
    machine = turbolane.Machine("xeon-gold-6130")
    assert [machine.clock_khz(level) for level in range(3)] == [2_800_000, 2_400_000, 1_900_000]
    assert machine.clock_khz(2, active_cores=1) > machine.clock_khz(2)
    assert machine.drop_pct(2) == pytest.approx(100 * (1 - 1.9 / 2.8))
    assert (machine.level_of("scalar"), machine.level_of("heavy-512")) == (0, 2)


def test_objects_travel(tmp_path) -> None:
    for thing in (turbolane.Machine("xeon-6980p"), turbolane.Scenario("thesis-nginx")):
        assert pickle.loads(pickle.dumps(thing)).to_toml() == thing.to_toml()
    path = tmp_path / "mine.toml"
    path.write_text(turbolane.Machine("xeon-w-2104").to_toml())
    assert turbolane.Machine(path).id == "xeon-w-2104"


@pytest.mark.parametrize("policy", ["fair", "lane:detect=trap"])
def test_a_simulation_is_the_command_s(policy) -> None:
    command = [os.environ["TURBOLANE"], "sim", "thesis-nginx", "--seed", "3", "-p", policy, "--json"]
    (theirs,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["runs"]
    ours = turbolane.simulate("thesis-nginx", policy=policy, seed=3)
    assert ours.simulated_ns == theirs["simulated_ns"]
    assert ours.mean_khz == theirs["total"]["mean_khz"]
    assert ours.residency_frac == theirs["total"]["residency_frac"]
    assert ours.migrations_per_s == theirs["total"]["migrations_per_s"]
    by_name = {load["name"]: load for load in theirs["loads"]}
    for load in ours.loads:
        other = by_name[load.name]
        for name in (
            "wide",
            "work",
            "work_per_s",
            "cpu_per_work_ns",
            "mean_khz",
            "reduced_frac",
            "starts_per_s",
        ):
            assert getattr(load, name) == other[name], (load.name, name)
        if other["latency"]:
            assert load.latency_p99_ns == other["latency"]["p99_ns"]


def test_a_record_covers_its_window() -> None:
    run = turbolane.simulate("thesis-nginx", policy="fair", record_ns=10_000_000)
    for core in set(run.levels["core"]):
        spans = [row for row in run.levels.rows() if row["core"] == core]
        assert sum(row["end_ns"] - row["start_ns"] for row in spans) == 10_000_000
    assert {"nginx", "wrk2"} == set(run.runs["load"])
    assert (max(run.levels["level"]), run.dropped) == (2, 0)
    without = turbolane.simulate("thesis-nginx")
    assert (without.runs, without.levels, without.dropped) == (None, None, None)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: turbolane.Machine("nosuch"), 'no machine "nosuch"'),
        (lambda: turbolane.Machine.from_toml("schema = 1\nx ="), "line 2"),
        (lambda: turbolane.Scenario("nosuch"), 'no scenario "nosuch"'),
        (lambda: turbolane.Machine("xeon-gold-6130").clock_khz(9), "no level 9"),
        (lambda: turbolane.Machine("xeon-gold-6130").clock_khz(0, 99), "99 cores"),
        (lambda: turbolane.Machine("xeon-gold-6130").level_of("vast"), '"vast"'),
        (lambda: turbolane.simulate("thesis-nginx", policy="lane:x=1"), "lane:x=1"),
        (lambda: turbolane.simulate("thesis-nginx", variant="mmx"), 'no variant "mmx"'),
        (lambda: turbolane.simulate("thesis-nginx", packages=0), "0 packages"),
        (lambda: turbolane.simulate("thesis-nginx", packages=99), "does not fit"),
        (lambda: turbolane.simulate("thesis-nginx", duration_ns=5), "cannot be simulated"),
        (lambda: turbolane.simulate("sfma-nginx", "xeon-w-2104"), "does not fit"),
    ],
)
def test_bad_input_is_explained(call, says) -> None:
    with pytest.raises(turbolane.InputError, match=says) as caught:
        call()
    assert caught.value.what and caught.value.why and caught.value.next
    assert pickle.loads(pickle.dumps(caught.value)).next == caught.value.next
