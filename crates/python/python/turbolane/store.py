# SPDX-License-Identifier: MIT OR Apache-2.0
"""The folder of a sweep: its results as Parquet, and what they are results of.

::

    sweep.json            format, version of the package, digest of each scenario and machine
    part-000001.parquet   rows; each part is written under another name and renamed, so that it is
    part-000002.parquet   there completely or not at all
    lock                  held by the process that writes

``turbolane``'s readers are any that read a folder of Parquet files.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import IO, Any, Dict, List, Optional, Sequence, Set

from turbolane import _native
from turbolane.errors import InputError
from turbolane.results import COLUMNS, KEY
from turbolane.simulation import Name
from turbolane.table import needed
from turbolane.work import Rows, Task

# Version of the folder's format.
SCHEMA = 1
# Results are written at the latest after so many seconds.
WRITE_EVERY_S = 5.0
# Columns by type; all others are floating-point numbers.
TEXTS = ("scenario", "machine", "policy", "variant", "load", "work")
WHOLE = (
    "packages",
    "seed",
    "simulated_ns",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p999_ns",
)


class Store:
    """Results of a sweep in a folder; one process writes at a time."""

    def __init__(self, folder: Name) -> None:
        self._arrow = needed("pyarrow")
        self._parquet = needed("pyarrow.parquet")
        self.folder = Path(folder)
        self._waiting: Rows = []
        self._written = time.monotonic()
        self._lock: Optional[IO[str]] = None

    def __enter__(self) -> Store:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.folder / "lock", "w")
        except OSError as error:
            raise InputError(
                f"cannot keep a sweep in {self.folder}", str(error), "name a folder of your own"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InputError(
                f"cannot keep a sweep in {self.folder}", "another sweep writes to it now", "wait for its end"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            if self._lock is not None:
                self._lock.close()

    def check(self, tasks: Sequence[Task]) -> None:
        """Refuses a folder of another version, or of other scenarios and machines of these names."""
        path, own = self.folder / "sweep.json", _digests(tasks)
        what = f"cannot continue the sweep in {self.folder}"
        known: Dict[str, Any] = {
            "schema": SCHEMA,
            "version": _native.VERSION,
            "duration_ns": None,
            "digests": {},
        }
        if path.exists():
            try:
                known = json.loads(path.read_text())
                schema, version, digests = known["schema"], known["version"], known["digests"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise InputError(what, f"sweep.json is damaged: {error!r}", "use another folder") from error
            if (schema, version) != (SCHEMA, _native.VERSION):
                here = f"{_native.VERSION} (format {SCHEMA})"
                why = f"it is of turbolane {version} (format {schema}), this is {here}"
                raise InputError(what, why, "use another folder")
            for name, digest in own.items():
                if digests.get(name, digest) != digest:
                    raise InputError(what, f"{name} has been changed since", "use another folder")
            if known["duration_ns"] != tasks[0].duration_ns:
                raise InputError(
                    what, f"its duration_ns is {known['duration_ns']}", "use that, or another folder"
                )
        known["duration_ns"] = tasks[0].duration_ns
        known["digests"].update(own)
        _write(path, lambda new: new.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n"))

    def done(self) -> Set[str]:
        """Keys of the tasks whose results are here."""
        return {Task.key_of(row) for row in self.rows(KEY)}

    def add(self, task: Task, rows: Rows) -> None:
        """Keeps a task's results."""
        self._waiting.extend(rows)
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Writes what is not written yet."""
        if self._waiting:
            table = self._arrow.Table.from_pylist(self._waiting, schema=self._schema())
            number = 1 + max((int(path.stem[5:]) for path in self._parts()), default=0)
            path = self.folder / f"part-{number:06}.parquet"
            _write(path, lambda new: self._parquet.write_table(table, new))
            self._waiting = []
        self._written = time.monotonic()

    def rows(self, columns: Sequence[str] = COLUMNS) -> Rows:
        """All written rows."""
        rows: Rows = []
        for path in self._parts():
            try:
                rows.extend(self._parquet.read_table(path, columns=list(columns)).to_pylist())
            except (OSError, self._arrow.ArrowException) as error:
                raise InputError(
                    f"cannot read {path}", str(error), "remove it, its tasks run again"
                ) from error
        return rows

    def _parts(self) -> List[Path]:
        return sorted(self.folder.glob("part-*.parquet"))

    def _schema(self) -> Any:
        arrow = self._arrow
        kinds = {
            **dict.fromkeys(TEXTS, arrow.string()),
            **dict.fromkeys(WHOLE, arrow.int64()),
            "wide": arrow.bool_(),
        }
        return arrow.schema([(name, kinds.get(name, arrow.float64())) for name in COLUMNS])


def _digests(tasks: Sequence[Task]) -> Dict[str, str]:
    """Of the text of each scenario and machine."""
    texts: Dict[str, str] = {}
    for task in tasks:
        for name, thing in (
            (f"scenario {task.scenario.name}", task.scenario),
            (f"machine {task.machine.id}", task.machine),
        ):
            if name not in texts:
                texts[name] = thing.to_toml()
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def _write(path: Path, write: Any) -> None:
    """Writes a file completely or not at all."""
    new = path.with_name(f".{path.name}.new")
    write(new)
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)
