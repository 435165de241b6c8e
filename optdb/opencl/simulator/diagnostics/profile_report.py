"""The result of profiling a call, as printed tables, as rows, and as a trace for browsers."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from optdb.html_tables import ReportTables
from optdb.lifters.text_tables import new_table, text_of

HOST = "host"
SHOWN = 25
TRANSFERS = ("upload", "download")


@dataclass(frozen=True)
class Row:
    """A command or a host node in a call."""

    #: The node's op; ``argument`` or ``result`` for a transfer of the call's arguments or results.
    op: str
    #: Name of the node's result; empty if it has none.
    name: str
    #: Line in the user's code that created the node; empty if unknown.
    line: str
    trace: str
    where: str = HOST
    #: Name of the kernel, or ``copy``, ``fill``, ``upload`` or ``download``; empty for host-only work.
    kernel: str = ""
    #: ``launch`` for kernel launches; otherwise the same as `kernel`.
    kind: str = ""
    #: Time on the device in seconds; None if nothing was enqueued.
    device: float | None = None
    #: Time in Python in seconds, without a plan and including waits.
    host: float = 0.0
    #: Number of bytes read and written; each array is counted once.
    nbytes: int = 0
    #: Number of floating-point operations in the node, given in the row of the node's longest command; None if unknown.
    operations: int | None = None

    @property
    def gigabytes_per_second(self) -> float | None:
        """Memory throughput in GB/s; None if there is no time on the device."""
        return self.nbytes / self.device * 1e-9 if self.device else None

    @property
    def gigaflops(self) -> float | None:
        """Billions of operations per second; None if unknown."""
        return self.operations / self.device * 1e-9 if self.device and self.operations is not None else None


@dataclass(frozen=True)
class Span:
    """An interval on the timeline."""

    name: str
    where: str
    #: Seconds since the start of the call.
    begin: float
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class ProfileReport(ReportTables):
    """The result of a profile; it prints as tables."""

    name: str
    calls: int
    #: Rows of the commands and host nodes, in order; times are medians.
    rows: list[Row]
    spans: list[Span]

    @property
    def device_seconds(self) -> float:
        """Seconds of device time in a call."""
        return sum(row.device or 0.0 for row in self.rows)

    @property
    def transfers(self) -> list[Row]:
        """The rows of transfers between the host and the device."""
        return [row for row in self.rows if row.kind in TRANSFERS]

    def by(self, key: Callable[[Row], str]) -> dict[str, list[Row]]:
        """Return groups of rows, sorted by time on the device, then by time on the host, longest first.

        Parameters
        ----------
        key : callable
            Returns the name of a row's group, for example ``lambda row: row.op``.

        Returns
        -------
        dict of str to list of Row
            The rows in each group, in their original order.
        """
        return _grouped(self.rows, key)

    def __str__(self) -> str:
        return text_of(self.render(), width=140)

    def render(self) -> Group:
        """Return the tables, for `rich`.

        Returns
        -------
        rich.console.Group
            Tables of times in milliseconds, by op, line and kernel.
        """
        commands = [row for row in self.rows if row.device is not None]
        on_host = _grouped((row for row in self.rows if row.where == HOST), lambda row: row.op)
        host_rows = ((op, len(rows), f"{_seconds(rows)[1] * 1e3:.3f}") for op, rows in on_host.items())
        tables = [
            new_table(
                f"{self.name}: medians of {self.calls} calls", ("",), ("", "ms", "bytes"), self._summary(commands)
            ),
            self._by("op", commands),
            self._by("line", commands),
            self._by("kernel", [row for row in commands if row.kind == "launch"]),
            new_table("on the host", ("op",), ("nodes", "ms"), host_rows, SHOWN),
        ]
        return Group(*[table for table in tables if table.row_count])

    def chrome_trace(self, path: str | Path) -> Path:
        """Write the last call's timeline for ``chrome://tracing`` and Perfetto.

        Parameters
        ----------
        path : str or Path
            Path of the JSON file.

        Returns
        -------
        Path
            `path`.
        """
        threads = {"host": 1, "device": 2}
        labels = [("process_name", 0, self.name), *(("thread_name", tid, where) for where, tid in threads.items())]
        events: list[dict[str, Any]] = [
            {"name": kind, "ph": "M", "pid": 1, "tid": tid, "args": {"name": name}} for kind, tid, name in labels
        ]
        for span in self.spans:
            events.append(
                {
                    **{"name": span.name or "node", "cat": span.where, "ph": "X", "pid": 1, "tid": threads[span.where]},
                    **{"ts": span.begin * 1e6, "dur": span.seconds * 1e6},
                    "args": {key: value for key, value in span.details.items() if value not in (None, "")},
                }
            )
        path = Path(path)
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
        return path

    def _summary(self, commands: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
        yield "on the device", *_sums(commands, _device)
        for kind in dict.fromkeys(row.kind for row in commands):
            yield f"    {kind}", *_sums([row for row in commands if row.kind == kind], _device)
        yield "nodes on the host", *_sums([row for row in self.rows if row.where == HOST], lambda row: row.host)

    def _by(self, what: str, commands: Iterable[Row]) -> Table:
        rows, whole = [], self.device_seconds
        for name, group in _grouped(commands, operator.attrgetter(what)).items():
            device, host = _seconds(group)
            share = f"{100 * device / whole:.1f}" if whole else ""
            rates = _rate(sum(row.nbytes for row in group), device), _flops(group)
            rows.append((name or "not known", len(group), f"{device * 1e3:.3f}", share, *rates, f"{host * 1e3:.3f}"))
        return new_table(f"by {what}", (what,), ("commands", "ms", "%", "GB/s", "GFLOP/s", "host ms"), rows, SHOWN)


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return dict(sorted(groups.items(), key=lambda item: _seconds(item[1]), reverse=True))


def _device(row: Row) -> float:
    return row.device or 0.0


def _seconds(rows: Sequence[Row]) -> tuple[float, float]:
    return sum(map(_device, rows)), sum(row.host for row in rows)


def _sums(rows: Sequence[Row], seconds: Callable[[Row], float]) -> tuple[int, str, str]:
    return len(rows), f"{sum(map(seconds, rows)) * 1e3:.3f}", f"{sum(row.nbytes for row in rows):,}"


def _flops(rows: Sequence[Row]) -> str:
    """Return the operation rate of rows with known operation counts; empty if there are none."""
    counts = [row.operations for row in rows if row.operations is not None]
    return _rate(sum(counts), sum(map(_device, rows))) if counts else ""


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds * 1e-9:.1f}" if seconds else ""
