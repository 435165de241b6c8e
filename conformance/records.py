"""What became of each test: the record, and the lines in which a pytest process writes it down.

The pytest process appends one JSON line when a test starts and one per result, and flushes each, so that a process
which dies leaves all its records, and the test that it ran. `read_log` turns the lines back into records.
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
    """What became of one test, or of one case of a test that has cases.

    Parameters
    ----------
    id : str
        The test's pytest node id, relative to the folder that holds the suites, followed by ``#case`` where the
        test is one of many cases.
    test : str
        The node id that pytest can be given to run it again.
    outcome : str
        One of the names above.
    seconds : float
        CPU seconds that it took.
    error : str
        The end of the error's text, empty where there is none.
    """

    id: str
    test: str
    outcome: str
    seconds: float = 0.0
    error: str = ""


@dataclass
class Log:
    """What a pytest process wrote: results in order, the test it was at, and whether it got to its end."""

    results: dict[str, Result] = field(default_factory=dict)
    running: str | None = None
    finished: bool = False


class LogWriter:
    """Append records to a stream, one flushed JSON line each."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, test: str) -> None:
        """Say that a test begins."""
        self._write({"start": test})

    def result(self, result: Result) -> None:
        """Say what became of a test or a case."""
        self._write({"result": asdict(result)})

    def end(self, test: str) -> None:
        """Say that a test, with all its cases, is over."""
        self._write({"end": test})

    def finish(self) -> None:
        """Say that every test has been run."""
        self._write({"finish": True})

    def _write(self, line: dict[str, object]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


def read_log(path: Path) -> Log:
    """Read what a pytest process wrote, whole or cut off.

    Parameters
    ----------
    path : Path
        The file of JSON lines; it need not exist.

    Returns
    -------
    Log
        What the lines say. A last line that was cut off by a crash is left out.
    """
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
