"""Child processes in Python: `command`, `environment`."""

from __future__ import annotations

import os
import sys

__all__ = ["command", "environment"]


def command(module: str, *args: str) -> list[str]:
    """Return the command that runs a module in another process."""
    return [sys.executable, "-m", module, *args]


def environment() -> dict[str, str]:
    """Return the environment of a process with the same module search path as this one."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
