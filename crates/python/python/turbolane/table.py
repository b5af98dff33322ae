# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables: columns of equal length, without a dependency; Arrow, pandas and polars on request."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Sequence

from turbolane.errors import InputError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Rows that are shown where a table is printed.
SHOWN = 10


class Table:
    """Named columns of equal length.

    ``table["name"]`` is a column (a list), ``table.rows()`` are dictionaries, ``len(table)`` is
    the number of rows. Libraries that read the Arrow stream interface (polars, pyarrow, duckdb)
    take it as it is.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns: Dict[str, List[Any]] = {name: list(values) for name, values in columns.items()}
        lengths = {len(values) for values in self._columns.values()}
        if len(lengths) > 1:
            raise InputError(
                "cannot make a table",
                f"its columns have {', '.join(map(str, sorted(lengths)))} rows",
                "give columns of equal length",
            )

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
        """A table of these columns; a row without a value has ``None`` there."""
        return cls({name: [row.get(name) for row in rows] for name in names})

    @property
    def names(self) -> List[str]:
        """Names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, name: str) -> List[Any]:
        try:
            return self._columns[name]
        except KeyError:
            raise InputError(
                f'there is no column "{name}"', f"there are {', '.join(self.names)}", "choose one of them"
            ) from None

    def rows(self) -> Iterator[Dict[str, Any]]:
        """Each row as a dictionary."""
        for values in zip(*self._columns.values()):
            yield dict(zip(self._columns, values))

    def where(self, **equal: Any) -> Table:
        """The rows whose columns have these values."""
        for name in equal:
            self[name]
        rows = [row for row in self.rows() if all(row[name] == value for name, value in equal.items())]
        return Table.from_rows(rows, self.names)

    def to_arrow(self) -> pyarrow.Table:
        """As an Arrow table (needs pyarrow)."""
        return needed("pyarrow").table(self._columns)

    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas frame (needs pandas)."""
        return needed("pandas").DataFrame(self._columns)

    def to_polars(self) -> polars.DataFrame:
        """As a polars frame (needs polars)."""
        return needed("polars").DataFrame(self._columns, infer_schema_length=None)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<turbolane.Table: {len(self)} rows of {', '.join(self.names)}>"

    def __str__(self) -> str:
        cells = [self.names] + [[_text(value) for value in row.values()] for row in self._first()]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
        if len(self) > SHOWN:
            lines.append(f"... {len(self) - SHOWN} more rows")
        return "\n".join(lines)

    def _first(self) -> List[Dict[str, Any]]:
        return [row for row, _ in zip(self.rows(), range(SHOWN))]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(value))}</td>" for value in row.values()) + "</tr>"
            for row in self._first()
        )
        more = f"<p>{len(self) - SHOWN} more rows</p>" if len(self) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def needed(module: str) -> Any:
    """A library that this package can do without."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"cannot make a frame of {module}", str(error), f"pip install {module}") from error
