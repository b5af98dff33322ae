# SPDX-License-Identifier: MIT OR Apache-2.0
"""The package as a whole: types, documents, notebooks."""

import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

# Libraries without types return what mypy cannot know.
STRICT = ("--strict", "--ignore-missing-imports", "--no-warn-return-any")
FOLDER = pathlib.Path(__file__).parents[1]


def _output(command, cwd) -> str:
    """What a command prints, elsewhere than beside the package's sources."""
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


def test_stubs_are_those_of_the_module(tmp_path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "turbolane._native", "--ignore-disjoint-bases"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_right(tmp_path) -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", *STRICT, "-p", "turbolane"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_loads_no_library(tmp_path) -> None:
    libraries = ("altair", "pandas", "polars", "pyarrow", "ray", "tqdm")
    code = f"import sys, turbolane; print([name for name in {libraries} if name in sys.modules])"
    assert _output([sys.executable, "-c", code], tmp_path) == "[]\n"


@pytest.mark.parametrize("path", sorted((FOLDER / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path) -> None:
    pytest.importorskip("altair")
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells
    names = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), path.name, "exec"), names)


@pytest.mark.parametrize("page", ["crates/python/README.md", "docs/python.md"])
def test_documents_name_what_exists(page) -> None:
    text = (FOLDER.parents[1] / page).read_text()
    names = set(re.findall(r"turbolane\.([a-zA-Z_.]+)\(", text))
    assert names
    for name in names:
        module, _, function = f"turbolane.{name}".rpartition(".")
        assert callable(getattr(importlib.import_module(module), function)), name
