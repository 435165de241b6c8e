"""Stack traces of variables and nodes, which both hosts record while user code builds a graph.

The hosts look up the source line of each frame of each trace, and then drop the frames that are in the hosts' own
files. This module looks up each line and each file name only once.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from types import FrameType
from typing import Any

#: A frame's file, line number, function and source line.
TraceEntry = tuple[str, int, str, str | None]

#: Maps a file, a line number and a function to their entry, preceded by the content of the file in `linecache` from
#: which the entry was made.
_entries: dict[tuple[str, int, str], tuple[Any, TraceEntry]] = {}
_MOST_ENTRIES = 20_000


class StackTraces:
    """Extracts stack traces without their innermost frames in a host's own files.

    `own_files` contains parts of the paths of these files.
    """

    def __init__(self, own_files: Iterable[str]) -> None:
        self._own_parts = [file.replace("/", separator) for file in own_files for separator in "/\\"]
        self._is_own: dict[str, bool] = {}

    def add(self, thing: Any, frame: FrameType, limit: int) -> Any:
        """Add the trace that ends at `frame` to a variable or node, and return the variable or node."""
        trace = self._trace(frame, limit) if limit else []
        thing.tag.trace = [trace] if trace else trace
        return thing

    def _trace(self, frame: FrameType | None, limit: int) -> list[TraceEntry]:
        """Return at most `limit` frames, or all frames if it is -1, from the outermost frame to the innermost one."""
        while frame is not None and self._is_host(frame.f_code.co_filename):
            frame = frame.f_back
        trace: list[TraceEntry] = []
        while frame is not None and (len(trace) < limit or limit == -1):
            trace.append(_entry_of(frame))
            frame = frame.f_back
        trace.reverse()
        return trace

    def _is_host(self, file: str) -> bool:
        found = self._is_own.get(file)
        if found is None:
            # Like the hosts, count their tests as user code.
            found = self._is_own[file] = any(part in file for part in self._own_parts) and "tests" not in file
        return found


def _entry_of(frame: FrameType) -> TraceEntry:
    code = frame.f_code
    file = code.co_filename
    key = file, frame.f_lineno, code.co_name
    content = linecache.cache.get(file)
    known = _entries.get(key)
    if known is not None and known[0] is content:
        return known[1]
    line = linecache.getline(file, frame.f_lineno, frame.f_globals)
    entry = (*key, line.strip() if line else None)
    if len(_entries) >= _MOST_ENTRIES:
        _entries.clear()
    _entries[key] = linecache.cache.get(file), entry
    return entry
