"""Finds lines of a script that start processes, each of which would run the script again.

A fresh process imports the script. Code that must run only in the first process belongs under
``if __name__ == "__main__":``. This module imports nothing from optdb, so that every package can import it.
"""

from __future__ import annotations

import ast
import linecache
import sys
from types import FrameType

__all__ = ["check_script", "is_guarded"]

#: If one of these names is in the condition of an `if`, only the first process runs the body of the `if`.
_GUARDS = frozenset({"__name__", "parent_process", "current_process"})


def check_script(deed: str, alternative: str) -> None:
    """Raise RuntimeError if a fresh process would also run the current line of the script; the error names the line.

    `deed` says what the line does, and `alternative` says what the user can do instead; both are inserted into a
    sentence.
    """
    frame = _script_frame()
    if frame is None:
        return
    path = frame.f_code.co_filename
    source = "".join(linecache.getlines(path))
    if not source or is_guarded(source, frame.f_lineno):
        return
    raise RuntimeError(
        f"{path}, line {frame.f_lineno}, {deed}, and each process runs the script again.\n"
        f'The cure: put this line under `if __name__ == "__main__":`, or {alternative}'
    )


def _script_frame() -> FrameType | None:
    """Return the frame of the script if new processes would run it; None for consoles, notebooks and packages."""
    main = sys.modules["__main__"]
    name = getattr(main.__spec__, "name", None)
    if name is None and not hasattr(main, "__file__"):
        return None
    if name is not None and name.rpartition(".")[2] == "__main__":
        return None
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_globals is vars(main)):
        frame = frame.f_back
    return frame


def is_guarded(source: str, line: int) -> bool:
    """Return whether a line is in an `if` body that only the first process runs."""
    return any(
        isinstance(node, ast.If)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and any(getattr(part, "id", getattr(part, "attr", None)) in _GUARDS for part in ast.walk(node.test))
        for node in ast.walk(ast.parse(source))
    )
