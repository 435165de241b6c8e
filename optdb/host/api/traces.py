"""Finds the line of the user's code that created a variable, in the stack trace that Theano records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import theano
from theano.gof.utils import get_variable_trace_string

from optdb.host.api.graph import Variable

_INSIDE = (str(Path(theano.__file__).parent), str(Path(__file__).parent.parent))
_FAR = 1000


def source_location(var: Variable) -> tuple[str, str]:
    """Return the user's line that created a variable, and the call stack at that time; both are empty if unknown.

    If a rewriter has dropped the line, return the line of the nearest ancestor: ``after train.py:11: h = x.dot(w)``.
    """
    nearest = _nearest(var)
    if nearest is None:
        return "", ""
    return ("" if nearest is var else "after ") + user_line(nearest), creation_trace(nearest)


def _nearest(var: Variable) -> Variable | None:
    """Return `var` or its nearest ancestor with a known line; None if there is none."""
    seen = {var}
    todo = deque(seen)
    while todo and len(seen) < _FAR:
        var = todo.popleft()
        if var.owner is not None and user_line(var):
            return var
        following = [] if var.owner is None else [operand for operand in var.owner.inputs if operand not in seen]
        seen.update(following)
        todo.extend(following)
    return None


def copy_trace(old: Variable, new: Variable) -> None:
    """Copy the stack trace of `old` to its replacement `new`, whose own trace would lead to a line of optdb."""
    trace = getattr(old.tag, "trace", None)
    if trace and new.owner is not None:
        new.tag.trace = trace


def creation_trace(var: Variable) -> str:
    """Return the call stack in which a variable was created, line by line; empty if unknown."""
    return get_variable_trace_string(var).strip() if user_line(var) else ""


def user_line(var: Variable) -> str:
    """Return the line that created a variable, as ``train.py:12: loss = x.sum()``; empty if unknown."""
    for trace in _traces(getattr(var.tag, "trace", None)):
        for file, line, _, text in reversed(trace):
            if not str(file).startswith(_INSIDE):
                return f"{Path(file).name}:{line}: {text}"
    return ""


def _traces(traces: Any) -> Iterator[Any]:
    if not traces:
        return
    if isinstance(traces[0], tuple):  # a trace that is not in a list
        yield traces
    else:
        for trace in traces:
            yield from _traces(trace)
