"""OpenCL programs, built once per process, and errors that show what the compiler saw.

Source comes in, and a built program goes out. A compiler that refuses makes a :class:`BuildError`, which shows the
lines with the numbers that the compiler's log speaks of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from optdb.runtime.library import cl

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: What PyOpenCL's error says around the compiler's own words.
_LOG = re.compile(r"Build on <.*?>:\s*(.*?)\s*(?:\(options: .*)?\Z", re.DOTALL)

#: Programs of each context by source and options. A context that goes takes its programs along.
_built: WeakKeyDictionary[Context, dict[tuple[str, tuple[str, ...]], cl.Program]] = WeakKeyDictionary()


class BuildError(RuntimeError):
    """An OpenCL compiler's refusal, with its log and the numbered source.

    Attributes
    ----------
    log : str
        What the compiler wrote.
    source : str
        What it was given.
    """

    def __init__(self, message: str, log: str = "", source: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.source = source


def build(
    context: Context, source: str, options: Iterable[str] = (), name: str = "the program", own_lines: int = 0
) -> cl.Program:
    """Build a program for a context's device, or return the one built before.

    Parameters
    ----------
    context : Context
        Where it is to run.
    source : str
        OpenCL C.
    options : iterable of str
        Options of the compiler, one each: ``["-cl-mad-enable", "-DWIDTH=4"]``.
    name : str
        What the program is called in errors.
    own_lines : int
        How many lines the source begins with that errors need not show.

    Raises
    ------
    BuildError
        If the compiler refuses the source or the options.
    """
    key = (source, tuple(options))
    built = _built.setdefault(context, {})
    if key not in built:
        built[key] = make(context, *key, name, own_lines)
    return built[key]


def make(
    context: Context, source: str, options: Iterable[str] = (), name: str = "the program", own_lines: int = 0
) -> cl.Program:
    """Build a program like `build`, whether or not there is one in this process."""
    program = cl.Program(context.cl_context, source)
    try:
        return program.build(options=list(options), cache_dir=False)
    except cl.Error as error:
        log = _log(error)
        given = f" with {' '.join(options)}" if options else ""
        refusal = f"{name} does not build on {context.device.name.strip()}{given}"
        raise BuildError(f"{refusal}:\n{log}\n\n{numbered(source, own_lines)}", log, source) from None


def numbered(source: str, own_lines: int = 0) -> str:
    """Return source with numbers before its lines, without the first `own_lines`."""
    lines = source.splitlines()
    return "\n".join(f"{number:4}  {line}".rstrip() for number, line in enumerate(lines, 1) if number > own_lines)


def _log(error: cl.Error) -> str:
    text = str(error)
    found = _LOG.search(text)
    return found[1] if found else text
