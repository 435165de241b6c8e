"""Defines the results of tests, and writes and reads the lines in which a pytest process reports them.

The pytest process appends one JSON line when a test starts and one per result, and flushes each line. If the process
dies, its file therefore contains all results so far, and the name of the test in progress. `read_log` turns the lines
back into records.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

PASSED = "passed"
SKIPPED = "skipped"
FAILED = "failed"
CRASHED = "crashed"
TIMEOUT = "timeout"
MISSING = "missing"


@dataclass(frozen=True)
class Result:
    """The result of one test, or of one case of a test that has cases.

    The `id` is the test's pytest node id, relative to the suites' folder; for a case, ``#case`` is appended. `test` is
    a node id that pytest can run again. `seconds` are CPU seconds, and `error` is the last part of the error's text.
    """

    id: str
    test: str
    outcome: str
    seconds: float = 0.0
    error: str = ""


@dataclass
class Log:
    """The output of a pytest process: results in order, the test in progress, and whether all tests are done."""

    results: dict[str, Result] = field(default_factory=dict)
    running: str | None = None
    finished: bool = False


class LogWriter:
    """Appends records to a stream as JSON lines, and flushes the stream after each line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, test: str) -> None:
        """Record that a test begins."""
        self._write({"start": test})

    def result(self, result: Result) -> None:
        """Record the result of a test or a case."""
        self._write({"result": asdict(result)})

    def end(self, test: str) -> None:
        """Record that a test, with all its cases, is over."""
        self._write({"end": test})

    def finish(self) -> None:
        """Record that every test has been run."""
        self._write({"finish": True})

    def _write(self, line: dict[str, object]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


def read_log(path: Path) -> Log:
    """Read the output of a pytest process; the file may be missing, and an incomplete last line is ignored."""
    log = Log()
    if not path.exists():
        return log
    for text in path.read_text().splitlines(keepends=True):
        if not text.endswith("\n"):
            break
        line = json.loads(text)
        if "start" in line:
            log.running = line["start"]
        elif "end" in line:
            log.running = None
        elif "finish" in line:
            log.finished = True
        else:
            result = Result(**line["result"])
            log.results[result.id] = result
    return log
