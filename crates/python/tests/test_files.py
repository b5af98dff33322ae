# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scans and recordings."""

import pytest

import turbolane


def test_a_recording_has_all_events(data) -> None:
    paths = sorted((data / "traces").glob("*.trace"))
    whole = [path for path in paths if path.name not in ("damaged.trace", "version.trace")]
    assert whole
    for path in whole:
        recording = turbolane.Recording(path)
        events = recording.events()
        assert len(events) == len(recording) > 100
        assert events["at_ns"] == sorted(events["at_ns"])
        assert {"task", "switch"} <= set(events["kind"])
        if recording.end_ns is not None:
            assert recording.start_ns <= events["at_ns"][-1] <= recording.end_ns
            assert recording.lost is not None


@pytest.mark.parametrize("name", ["damaged.trace", "version.trace", "README.md", "nosuch"])
def test_a_bad_recording_is_refused(data, name) -> None:
    with pytest.raises(turbolane.InputError, match="cannot read"):
        turbolane.Recording(data / "traces" / name)


def test_a_recording_becomes_a_scenario(data) -> None:
    recording = turbolane.Recording(data / "traces" / "nginx-gzip1.trace")
    machine = turbolane.Machine("core-i9-7940x")
    scenario = recording.scenario(machine, name="web", count="ngx_ssl_write", none_scale=1.5)
    assert (scenario.name, scenario.machine, scenario.groups) == ("web", "core-i9-7940x", ["nginx"])
    wide = turbolane.simulate(scenario, machine, "fair")
    none = turbolane.simulate(scenario, machine, "fair", variant="none")
    # Two calls a request; 2,595 of them in 972 ms of CPU time were recorded.
    wide_per_s, none_per_s = wide.loads[0].work_per_s, none.loads[0].work_per_s
    assert abs(wide_per_s / (2595 / 0.972) - 1) < 0.02
    assert none_per_s > wide_per_s


@pytest.mark.parametrize(
    "options",
    [
        {"arrivals": "often"},
        {"count": "nosuch"},
        {"none_scale": 0.0},
        {"active_cores": 99},
        {"onto": "x"},
        {"sensitive_frac": 2.0},
        {"window_ns": (10**12, 10**13)},
    ],
)
def test_a_scenario_of_a_recording_is_refused(data, options) -> None:
    recording = turbolane.Recording(data / "traces" / "nginx-gzip1.trace")
    with pytest.raises(turbolane.InputError):
        recording.scenario(turbolane.Machine("core-i9-7940x"), **options)


def test_a_scenario_says_that_its_recording_was_cut_off(data, tmp_path) -> None:
    complete = data / "traces" / "nginx-gzip1.trace"
    cut_off = tmp_path / "web.trace"
    cut_off.write_bytes(complete.read_bytes()[:-1])
    for path, is_cut_off in ((complete, False), (cut_off, True)):
        recording = turbolane.Recording(path)
        assert (recording.lost is None) == is_cut_off
        text = recording.scenario(turbolane.Machine("core-i9-7940x")).to_toml()
        assert ("# Note: the recording was cut off" in text) == is_cut_off


def test_a_recording_without_wide_code_is_no_scenario(data) -> None:
    recording = turbolane.Recording(data / "traces" / "some-tasks.trace")
    with pytest.raises(turbolane.InputError, match="neither marked functions"):
        recording.scenario(turbolane.Machine("xeon-gold-6130"))


def test_a_scan_lists_functions(tmp_path) -> None:
    (scanned,) = turbolane.scan(turbolane._native.__file__, level=0)
    assert (scanned.architecture, scanned.kind) == ("x86-64", "shared object")
    assert scanned.code_bytes > 100_000
    assert all(level >= 0 for level in scanned.functions["license_level"])
    text = tmp_path / "text"
    text.write_text("no program")
    with pytest.raises(turbolane.InputError, match="ELF"):
        turbolane.scan(text)
    with pytest.raises(turbolane.InputError, match="No such file"):
        turbolane.scan(tmp_path / "nosuch")


def test_a_scan_finds_wide_code(tmp_path) -> None:
    import shutil
    import subprocess

    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    source = tmp_path / "wide.c"
    source.write_text(
        "#include <immintrin.h>\n"
        '__attribute__((target("avx512f"))) __m512d wide(__m512d a, __m512d b) {'
        " for (int i = 0; i < 99; i++) a = _mm512_fmadd_pd(a, b, a); return a; }\n"
        "int narrow(int a) { return a + 1; }\n"
    )
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", tmp_path / "wide.so", source], check=True)
    (scanned,) = turbolane.scan(tmp_path / "wide.so")
    assert scanned.functions["name"] == ["wide"]
    assert (scanned.license_level, scanned.functions["widest"]) == (2, ["zmm"])
    assert scanned.functions["heavy_zmm"][0] >= 1
