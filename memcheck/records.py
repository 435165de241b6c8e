"""Defines the results of runs, and writes and reads the lines in which a worker reports them.

A worker writes one line when a run starts and one line when the run is over. If the worker dies, its output therefore
contains all results so far, and the name of the run in progress.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from memcheck.launches import Named
from memcheck.log import Finding


@dataclass
class Result:
    """The result of one run; `findings` maps each finding of Oclgrind to how often it occurred.

    `device_kind` is the kind of device that the kernels are for, 'cpu' or 'gpu'. `declared` and `launched` are
    attributes of `memcheck.launches.Launches`. `error` is a traceback, or describes how the process ended. `seconds`
    are CPU seconds.
    """

    run: str
    case: str
    device_kind: str
    findings: dict[Finding, int] = field(default_factory=dict)
    declared: set[Named] = field(default_factory=set)
    launched: set[Named] = field(default_factory=set)
    error: str = ""
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether the run has neither findings nor an error."""
        return not self.findings and not self.error

    def owners(self, kernel: str) -> list[str]:
        """Return the classes of the ops that launched a kernel with a given name."""
        return sorted(owner for owner, name in self.launched if name == kernel)


class Writer:
    """Writes lines to a stream, and flushes the stream after each line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, index: int, run: str, case: str) -> None:
        """Record the start of a run: its index in the table, and its case."""
        self._write({"start": index, "run": run, "case": case})

    def result(self, result: Result) -> None:
        """Record a result."""
        line = {
            "run": result.run,
            "case": result.case,
            "device_kind": result.device_kind,
            "findings": [{**asdict(finding), "count": count} for finding, count in result.findings.items()],
            "declared": sorted(result.declared),
            "launched": sorted(result.launched),
            "error": result.error,
            "seconds": round(result.seconds, 3),
        }
        self._write({"result": line})

    def finish(self) -> None:
        """Record that nothing is left to run."""
        self._write({"finish": True})

    def _write(self, line: dict[str, object]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


@dataclass
class Log:
    """The output of a worker: results, the run in progress (index, name, case), and whether all runs are done."""

    results: list[Result] = field(default_factory=list)
    running: tuple[int, str, str] | None = None
    finished: bool = False


def read(path: Path) -> Log:
    """Read a worker's output, which may be incomplete."""
    log = Log()
    for text in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if not text.endswith("\n"):
            break
        line = json.loads(text)
        if "start" in line:
            log.running = (line["start"], line["run"], line["case"])
        elif "finish" in line:
            log.finished = True
        else:
            log.results.append(_result(**line["result"]))
            log.running = None
    return log


def _result(findings: list, declared: list, launched: list, **others: Any) -> Result:
    counts = {Finding(found["fault"], found["kernel"], tuple(found["lines"])): found["count"] for found in findings}
    return Result(findings=counts, declared=set(map(tuple, declared)), launched=set(map(tuple, launched)), **others)
