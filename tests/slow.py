"""Which tests take long: those in slow.txt, as `make slow-tests` has measured them.

They have the mark `slow`, as those have that say so themselves. A test that nobody has measured yet is a quick one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_name("slow.txt")
#: Where a run of the tests writes what it measures.
MEASURED = ROOT / "build" / "test-seconds"
#: CPU seconds, with those of other processes that a test starts, which a quick test takes at most.
QUICK_SECONDS = 0.8

_HEAD = f"# Tests that take more than {QUICK_SECONDS:g} CPU second(s), measured by `make slow-tests`.\n"


def slow_tests() -> frozenset[str]:
    """Return the ids of the tests that take long."""
    lines = LIST.read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def cpu_seconds() -> float:
    """Return what this process has used up to now, and those that it has started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def note(test: str, seconds: float) -> None:
    """Write down what a test took; each process of a run has a file."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    with (MEASURED / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps([test, seconds]) + "\n")


def write_list(measured: Iterable[tuple[str, float]], path: Path = LIST) -> None:
    """Write the list of slow tests."""
    slow = sorted({test for test, seconds in measured if seconds > QUICK_SECONDS})
    path.write_text(_HEAD + "".join(f"{test}\n" for test in slow))


if __name__ == "__main__":
    files = sorted(MEASURED.glob("*.jsonl"))
    write_list([json.loads(line) for file in files for line in file.read_text().splitlines()])
    print(f"{len(slow_tests())} tests are slow: {LIST.relative_to(ROOT)}")
