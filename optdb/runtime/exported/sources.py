"""What programs of a file must not say: a file is read and checked, and its kernels are all that is run of it.

Two things would reach beyond. A preprocessor reads other files if it is told to; it is told so in more ways than one,
so programs are cut into comments, strings and the rest as a preprocessor does. And kernels may take samplers, pipes,
images and the like, which a driver takes by an address that it trusts, as no plan does.
"""

from __future__ import annotations

import re

__all__ = ["is_handle", "trouble_in"]

#: Lines are continued by a backslash; compilers overlook spaces behind it.
_CONTINUED = re.compile(r"(\\|\?\?/)[ \t\v\f]*(\r\n|\n\r|\r|\n)")
#: What is without end takes all the rest, or the rest of the line.
_LEXED = re.compile(
    r"""/\*(?:.*?\*/|.*\Z) | //[^\r\n]* | "(?:[^"\\\r\n]|\\.)*"? | '(?:[^'\\\r\n]|\\.)*'?""", re.DOTALL | re.VERBOSE
)
_READS = re.compile(r"(#|%:|\?\?=)\s*(include|include_next|import|embed)\b")
_HANDLES = re.compile(r"\b(sampler_t|image[123]d\w*_t|pipe|queue_t|event_t|clk_event_t|reserve_id_t|ndrange_t)\b")


def is_handle(kind: str) -> bool:
    """Tell whether a type of OpenCL C, as a driver has its name, is one of what kernels must not take."""
    return _HANDLES.search(kind) is not None


def trouble_in(source: str) -> str | None:
    """Return what a program does that none of a plan does, in words; None if there is no such thing."""
    joined = _CONTINUED.sub("", source)
    bare = _LEXED.sub(" ", joined)
    if _READS.search(joined) or _READS.search(bare):
        return "reads other files"
    found = _HANDLES.search(bare)
    return None if found is None else f"has {found.group()!r} in it"
