# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests share. They run against the installed wheel (`./x test python`)."""

import pathlib

import pytest

# Long enough for every scenario's warm-up and some work.
SHORT_NS = 700_000_000


@pytest.fixture
def data() -> pathlib.Path:
    """The tree's test data."""
    return pathlib.Path(__file__).parents[3] / "tests" / "data"
