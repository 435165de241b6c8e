"""Calls a function in a separate process, with its own flags and caches.

The state of the process, such as Theano's flags and caches, is therefore the same in each call, and a crash only
affects one call. Arguments and results are passed as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
LAST_LINES = 12


class Failed(RuntimeError):
    """Raised if a process did not return a result. The message is the end of the process's output."""


class TookTooLong(Failed):
    """Raised if a process was killed because it exceeded its time limit."""


def call(
    function: str, *args: Any, flags: str = "", env: Mapping[str, str] | None = None, timeout: float | None = None
) -> Any:
    """Call a function, ``module:name``, in a new process; arguments and the result are passed as JSON.

    `flags` are added to THEANO_FLAGS, and `env` to the environment. Raise `Failed` if the process raises an error, is
    killed, or takes longer than `timeout` seconds.
    """
    python_path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    flags = ",".join(filter(None, [os.environ.get("THEANO_FLAGS"), flags]))
    everything = {
        **os.environ,
        "PYTHONPATH": python_path,
        "THEANO_FLAGS": flags,
        "PYTHONFAULTHANDLER": "1",
        **(env or {}),
    }
    with tempfile.TemporaryDirectory(prefix="optdb-") as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "profiles.isolated", function, json.dumps(args), str(result)]
        try:
            done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TookTooLong(f"took longer than {timeout:.0f} s") from None
        if done.returncode:
            raise Failed(_last_words(done))
        return json.loads(result.read_text())


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()][-LAST_LINES:]
    if done.returncode < 0:
        lines.append(f"killed by {signal.Signals(-done.returncode).name}")
    return "\n".join(lines) or f"exit status {done.returncode}"


def _main(function: str, args: str, result: str) -> None:
    module, _, name = function.partition(":")
    value = getattr(importlib.import_module(module), name)(*json.loads(args))
    Path(result).write_text(json.dumps(value))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("This module is started by other modules; `python -m profiles` lists modules to start by hand.")
    _main(*sys.argv[1:])
