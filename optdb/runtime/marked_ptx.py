"""PTX that OpenCL C's compiler does not know: comments in inline assembly, which become instructions of the binary.

NVIDIA's compiler makes PTX for a base architecture, such as sm_90, and refuses instructions that only one architecture
has (sm_90a). What it calls a program's binary is that PTX as text, and the driver takes text of any architecture of the
device for a binary. So kernels write such instructions behind a mark, as comments of inline assembly: the compiler
fills in registers, and `as_instructions` takes away the marks.
"""

from __future__ import annotations

import re

__all__ = ["DIRECTIVE_MARK", "MARK", "as_instructions", "is_marked"]

#: What a comment begins with that is an instruction.
MARK = "// sm_90a:"
#: The same of a directive for the kernel in which it stands, such as how many groups are to fit a unit.
DIRECTIVE_MARK = "// sm_90a kernel:"

_MARK = re.compile(rb"^([ \t]*)" + MARK.encode(), re.MULTILINE)
_DIRECTIVE = re.compile(rb"^[ \t]*" + DIRECTIVE_MARK.encode() + rb"([^\n]*)", re.MULTILINE)
_TARGET = re.compile(rb"^\.target\s+sm_90\b", re.MULTILINE)


def is_marked(source: str) -> bool:
    """Tell whether a program's source has marked instructions."""
    return MARK in source


def as_instructions(ptx: bytes) -> bytes | None:
    """Return PTX with its marked instructions in force; None if it has none, or is not for their architecture."""
    if not _TARGET.search(ptx) or not _MARK.search(ptx):
        return None
    return _with_directives(_TARGET.sub(b".target sm_90a", _MARK.sub(rb"\1", ptx)))


def _with_directives(ptx: bytes) -> bytes:
    """Move each marked directive in front of the body of its kernel."""
    while match := _DIRECTIVE.search(ptx):
        start = ptx.index(b"\n{", ptx.rindex(b".entry", 0, match.start()))
        before, after = ptx[start : match.start()], ptx[match.end() :]
        ptx = ptx[:start] + b"\n" + match[1] + before + after
    return ptx
