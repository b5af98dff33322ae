# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sweeps: every result once, whoever ran it and however often it was interrupted."""

import json

import pytest

import turbolane
from turbolane import engines, work

from conftest import SHORT_NS

ARGS = {
    "scenarios": ["thesis-nginx", "openssl-speed"],
    "machines": ["core-i9-7940x", "xeon-gold-6130"],
    "policies": ["fair", "lane:wide=1"],
    "seeds": range(1, 3),
    "duration_ns": SHORT_NS,
}
RUNS = 2 * 2 * 2 * 2


@pytest.fixture(scope="module")
def whole() -> turbolane.Table:
    return turbolane.sweep(**ARGS, engine="serial")


def keys(table: turbolane.Table) -> list:
    return list(dict.fromkeys(map(work.Task.key_of, table.rows())))


def test_combinations_come_once_and_in_order(whole) -> None:
    assert len(keys(whole)) == RUNS
    assert whole["scenario"] == sorted(whole["scenario"], reverse=True)
    single = turbolane.simulate("thesis-nginx", "xeon-gold-6130", "fair", seed=2, duration_ns=SHORT_NS)
    row = next(whole.where(machine="xeon-gold-6130", policy="fair", seed=2, load="nginx").rows())
    assert row["work_per_s"] == single.loads[0].work_per_s


def test_packages_are_one_number_or_several() -> None:
    args = {**ARGS, "scenarios": "sfma-nginx", "machines": "xeon-gold-6130", "policies": "fair", "seeds": [1]}
    (own,) = set(turbolane.sweep(**args)["packages"])
    several = turbolane.sweep(**args, packages=(size for size in (2, 1, 2)))
    assert list(dict.fromkeys(several["packages"])) == [2, 1], "each once, in their order"
    for size in (1, 2):
        alone = turbolane.sweep(**args, packages=size)
        assert list(alone.rows()) == list(several.where(packages=size).rows())
    assert own in (1, 2)
    small = {**args, "machines": "xeon-w-2104", "packages": [1, 8]}
    with pytest.raises(turbolane.InputError, match="does not fit on xeon-w-2104 with packages=1"):
        turbolane.sweep(**small)
    assert set(turbolane.sweep(**small, skip_misfits=True)["packages"]) == {8}


def test_threads_give_the_same(whole) -> None:
    assert list(turbolane.sweep(**ARGS, workers=3).rows()) == list(whole.rows())


class Interrupted:
    """Ends after some results, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self.after = after

    def run(self, tasks):
        for done, result in enumerate(engines.Serial().run(tasks)):
            if done == self.after:
                raise KeyboardInterrupt
            yield result


def test_an_interrupted_sweep_goes_on(whole, tmp_path) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            turbolane.sweep(**ARGS, engine=Interrupted(5), folder=tmp_path)
    ran = []

    class Counted:
        def run(self, tasks):
            ran.extend(tasks)
            return engines.Serial().run(tasks)

    table = turbolane.sweep(**ARGS, engine=Counted(), folder=tmp_path)
    assert len(ran) == RUNS - 2 * 5
    assert list(table.rows()) == list(whole.rows())
    assert list(turbolane.sweep(**ARGS, engine=Interrupted(0), folder=tmp_path).rows()) == list(whole.rows())
    # a larger sweep uses what is there
    more = turbolane.sweep(**{**ARGS, "seeds": range(1, 4)}, engine=Counted(), folder=tmp_path)
    assert (len(ran), len(keys(more))) == (RUNS - 10 + RUNS // 2, RUNS * 3 // 2)


def test_a_folder_of_other_results_is_refused(tmp_path) -> None:
    args = {**ARGS, "scenarios": "thesis-nginx", "seeds": [1]}
    turbolane.sweep(**args, folder=tmp_path)
    with pytest.raises(turbolane.InputError, match="duration_ns"):
        turbolane.sweep(**{**args, "duration_ns": SHORT_NS + 1}, folder=tmp_path)
    changed = turbolane.Machine.from_toml(turbolane.Machine("xeon-gold-6130").to_toml() + "\n# another\n")
    with pytest.raises(turbolane.InputError, match="machine xeon-gold-6130 has been changed"):
        turbolane.sweep(**{**args, "machines": changed}, folder=tmp_path)
    spec = tmp_path / "sweep.json"
    for text, says in (
        (json.dumps({**json.loads(spec.read_text()), "version": "0.0.1"}), "turbolane 0.0.1"),
        ("{", "damaged"),
    ):
        before = spec.read_text()
        spec.write_text(text)
        with pytest.raises(turbolane.InputError, match=says):
            turbolane.sweep(**args, folder=tmp_path)
        assert spec.read_text() == text
        spec.write_text(before)
    (tmp_path / "part-000001.parquet").write_text("no parquet")
    with pytest.raises(turbolane.InputError, match="part-000001.parquet"):
        turbolane.sweep(**args, folder=tmp_path)


def test_one_sweep_writes_at_a_time(tmp_path) -> None:
    from turbolane.store import Store

    with Store(tmp_path), pytest.raises(turbolane.InputError, match="another sweep"):
        Store(tmp_path).__enter__()
    with Store(tmp_path):
        pass


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"policies": "nosuch"}, "nosuch"),
        ({"machines": ["nosuch"]}, "nosuch"),
        ({"scenarios": "sfma-nginx", "machines": "xeon-w-2104"}, "does not fit"),
        ({"variants": ["mmx"]}, "mmx"),
        ({"scenarios": []}, "nothing to simulate"),
        ({"packages": []}, "nothing to simulate"),
        ({"packages": [1, 0]}, "0 packages"),
        ({"engine": "steam"}, "steam"),
        ({"workers": 0}, "0 workers"),
        ({"folder": "/dev/null/x"}, "/dev/null/x"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(change, says) -> None:
    with pytest.raises(turbolane.InputError, match=says):
        turbolane.sweep(**{**ARGS, **change})


def test_two_machines_of_one_name_are_refused() -> None:
    own = turbolane.Machine("xeon-gold-6130")
    other = turbolane.Machine.from_toml(own.to_toml() + "\n# another\n")
    with pytest.raises(turbolane.InputError, match="two machines are called xeon-gold-6130"):
        turbolane.sweep("openssl-speed", [own, other], duration_ns=SHORT_NS)
    table = turbolane.sweep("openssl-speed", [own, "xeon-gold-6130"], "fair", duration_ns=SHORT_NS)
    assert len(keys(table)) == 1


def test_what_is_swept_may_be_iterators(whole) -> None:
    once = {name: iter(ARGS[name]) for name in ("scenarios", "machines", "policies", "seeds")}
    table = turbolane.sweep(**once, variants=iter([None]), duration_ns=SHORT_NS)
    assert list(table.rows()) == list(whole.rows())


def test_misfits_can_be_left_out() -> None:
    table = turbolane.sweep(
        "sfma-nginx", ["xeon-w-2104", "xeon-gold-6130"], "fair", duration_ns=SHORT_NS, skip_misfits=True
    )
    assert set(table["machine"]) == {"xeon-gold-6130"}


def test_changes_are_against_the_same_place(whole) -> None:
    compared = turbolane.compare(whole)
    for row in compared.rows():
        if row["work_per_s"] is None:
            assert row["change_pct"] is None
        elif row["policy"] == "fair":
            assert row["change_pct"] == 0.0
    row = next(compared.where(policy="lane:wide=1", machine="core-i9-7940x", seed=1, load="nginx").rows())
    base = next(whole.where(policy="fair", machine="core-i9-7940x", seed=1, load="nginx").rows())
    assert row["change_pct"] == pytest.approx(100 * (row["work_per_s"] / base["work_per_s"] - 1))
    with pytest.raises(turbolane.InputError, match="muqss"):
        turbolane.compare(whole, "muqss")
