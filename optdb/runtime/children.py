"""The command line and the environment of Python child processes."""

from __future__ import annotations

import os
import sys


def command(module: str, *args: str) -> list[str]:
    """Return the command line that runs a module in another process."""
    return [sys.executable, "-m", module, *args]


def environment() -> dict[str, str]:
    """Return the environment variables for a child process that finds modules in the same folders as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
