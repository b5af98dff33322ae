# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables, and what they become."""

import pytest

from turbolane import InputError, Table

TABLE = Table({"name": ["a", "<b>"], "speed": [1.5, None]})


def test_rows_and_columns() -> None:
    assert (len(TABLE), TABLE.names, TABLE["speed"]) == (2, ["name", "speed"], [1.5, None])
    assert list(TABLE.rows())[1] == {"name": "<b>", "speed": None}
    assert list(TABLE.where(name="a").rows()) == [{"name": "a", "speed": 1.5}]
    assert str(TABLE) == "name  speed\na     1.5\n<b>   -"
    assert "&lt;b&gt;" in TABLE._repr_html_()
    assert "5 more rows" in str(Table({"n": range(15)}))


def test_bad_tables_and_names() -> None:
    with pytest.raises(InputError, match="equal length"):
        Table({"a": [1], "b": []})
    for call in (lambda: TABLE["nosuch"], lambda: TABLE.where(nosuch=1)):
        with pytest.raises(InputError, match="name, speed"):
            call()


def test_frames_have_the_same_values() -> None:
    pyarrow, pandas, polars = map(pytest.importorskip, ("pyarrow", "pandas", "polars"))
    assert TABLE.to_arrow().to_pydict() == {"name": ["a", "<b>"], "speed": [1.5, None]}
    assert TABLE.to_polars().rows() == [("a", 1.5), ("<b>", None)]
    assert TABLE.to_pandas().shape == (2, 2)
    # the Arrow stream interface
    assert polars.DataFrame(TABLE).rows() == [("a", 1.5), ("<b>", None)]
    assert pyarrow.table(TABLE).num_rows == len(pandas.DataFrame(TABLE.to_pandas()))


def test_a_missing_library_is_named(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match="pip install polars"):
        TABLE.to_polars()
