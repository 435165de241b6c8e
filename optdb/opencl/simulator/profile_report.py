"""What a profile has found: tables for people, rows for programs, a trace for browsers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from optdb.lifters.tables import new_table, text_of

HOST = "host"
#: So many rows a table has.
SHOWN = 25
#: Commands that move values between the host and the device.
TRANSFERS = ("upload", "download")


@dataclass(frozen=True)
class Row:
    """A command, or a node of the host, in one call.

    Parameters
    ----------
    op : str
        Of the node; ``argument`` or ``result`` for what is moved with a call.
    name : str
        Of the node's result; empty if it has none.
    line, trace : str
        Where in the user's code the node comes from; empty if that is not known.
    where : {'device', 'host'}
        Where the node computes.
    kernel : str
        What was launched; ``copy``, ``fill``, ``upload``, ``download``; empty for work of the host alone.
    kind : str
        ``launch`` or what `kernel` says.
    device : float or None
        Seconds on the device; None where nothing was put there.
    host : float
        Seconds of Python, without a plan, with what it waits for.
    nbytes : int
        What was read and written, each array once.
    operations : int or None
        Floating-point operations of the node, at the longest of its commands; None if they are not known.
    """

    op: str
    name: str
    line: str
    trace: str
    where: str = HOST
    kernel: str = ""
    kind: str = ""
    device: float | None = None
    host: float = 0.0
    nbytes: int = 0
    operations: int | None = None

    @property
    def gigabytes_per_second(self) -> float | None:
        """What was moved, by time; None if there is none."""
        return self.nbytes / self.device * 1e-9 if self.device else None

    @property
    def gigaflops(self) -> float | None:
        """Operations in a second, in milliards; None if they are not known."""
        return self.operations / self.device * 1e-9 if self.device and self.operations is not None else None


@dataclass(frozen=True)
class Span:
    """Something that took its time, on the host or on the device.

    Parameters
    ----------
    name : str
        What.
    where : {'device', 'host'}
        Where.
    begin, seconds : float
        When, from the beginning of the call.
    told : dict
        What else is known.
    """

    name: str
    where: str
    begin: float
    seconds: float
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ProfileReport:
    """What a profile has found.

    Parameters
    ----------
    name : str
        Of the function.
    calls : int
        How many were measured.
    rows : list of Row
        For each command, and each node of the host, in order; times are medians.
    spans : list of Span
        When what was done in the last call.
    """

    name: str
    calls: int
    rows: list[Row]
    spans: list[Span]

    @property
    def device_seconds(self) -> float:
        """How long the device works in a call."""
        return sum(row.device or 0.0 for row in self.rows)

    @property
    def transfers(self) -> list[Row]:
        """What moves values between the host and the device."""
        return [row for row in self.rows if row.kind in TRANSFERS]

    def by(self, key: Callable[[Row], str]) -> dict[str, list[Row]]:
        """Return the rows in groups, those first that take the longest on the device, or else on the host."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(key(row), []).append(row)
        return dict(sorted(groups.items(), key=lambda item: _seconds(item[1]), reverse=True))

    def __str__(self) -> str:
        return text_of(self.render(), width=140)

    def render(self) -> Group:
        """Return the tables, for `rich`."""
        on_device = [row for row in self.rows if row.device is not None]
        here = ProfileReport(self.name, self.calls, on_device, [])
        kernels = ProfileReport(self.name, self.calls, [row for row in on_device if row.kind == "launch"], [])
        hosts = ProfileReport(self.name, self.calls, [row for row in self.rows if row.where == HOST], [])
        tables = [
            self._summary(),
            _table("by op", "op", here.by(lambda row: row.op), self.device_seconds),
            _table("by line", "line", here.by(lambda row: row.line), self.device_seconds),
            _table("by kernel", "kernel", kernels.by(lambda row: row.kernel), self.device_seconds),
            _host_table(hosts.by(lambda row: row.op)),
        ]
        return Group(*[table for table in tables if table.row_count])

    def chrome_trace(self, path: str | Path) -> Path:
        """Write when what was done in the last call, for ``chrome://tracing`` and Perfetto.

        Parameters
        ----------
        path : str or Path
            Of a file of JSON.

        Returns
        -------
        Path
            `path`.
        """
        threads = {"host": 1, "device": 2}
        events: list[dict[str, Any]] = [_label("process_name", 0, self.name)]
        events += [_label("thread_name", number, where) for where, number in threads.items()]
        for span in self.spans:
            events.append(
                {
                    **{"name": span.name or "node", "cat": span.where, "ph": "X", "pid": 1, "tid": threads[span.where]},
                    **{"ts": span.begin * 1e6, "dur": span.seconds * 1e6},
                    "args": {key: value for key, value in span.told.items() if value not in (None, "")},
                }
            )
        path = Path(path)
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
        return path

    def _summary(self) -> Table:
        table = new_table(f"{escape(self.name)}: medians of {self.calls} calls", ("",), ("", "ms", "bytes"))
        commands = [row for row in self.rows if row.device is not None]
        _add(table, "on the device", commands, _device)
        for kind in dict.fromkeys(row.kind for row in commands):
            _add(table, f"    {kind}", [row for row in commands if row.kind == kind], _device)
        _add(table, "nodes on the host", [row for row in self.rows if row.where == HOST], lambda row: row.host)
        return table


def _device(row: Row) -> float:
    return row.device or 0.0


def _seconds(rows: Sequence[Row]) -> tuple[float, float]:
    return sum(map(_device, rows)), sum(row.host for row in rows)


def _add(table: Table, name: str, rows: Sequence[Row], seconds: Callable[[Row], float]) -> None:
    table.add_row(name, str(len(rows)), f"{sum(map(seconds, rows)) * 1e3:.3f}", f"{sum(r.nbytes for r in rows):,}")


def _table(title: str, what: str, groups: dict[str, list[Row]], whole: float) -> Table:
    """Return a table of what the device does."""
    table = new_table(title, (what,), ("commands", "ms", "%", "GB/s", "GFLOP/s", "host ms"))
    for name, rows in list(groups.items())[:SHOWN]:
        device, host = _seconds(rows)
        table.add_row(
            *(escape(name) or "not known", str(len(rows)), f"{device * 1e3:.3f}"),
            f"{100 * device / whole:.1f}" if whole else "",
            *(_rate(sum(row.nbytes for row in rows), device), _flops(rows), f"{host * 1e3:.3f}"),
        )
    if len(groups) > SHOWN:
        table.add_row(f"and {len(groups) - SHOWN} more", *[""] * 6)
    return table


def _host_table(groups: dict[str, list[Row]]) -> Table:
    table = new_table("on the host", ("op",), ("nodes", "ms"))
    for name, rows in list(groups.items())[:SHOWN]:
        table.add_row(escape(name), str(len(rows)), f"{_seconds(rows)[1] * 1e3:.3f}")
    if len(groups) > SHOWN:
        table.add_row(f"and {len(groups) - SHOWN} more", "", "")
    return table


def _flops(rows: Sequence[Row]) -> str:
    """Return the rate of operations of those whose number is known; nothing if that of some nodes is not."""
    known = [row.operations for row in rows if row.operations is not None]
    return _rate(sum(known), sum(map(_device, rows))) if known else ""


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds * 1e-9:.1f}" if seconds else ""


def _label(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
