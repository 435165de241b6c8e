"""Instructions of NVIDIA's GPUs that the driver's OpenCL compiler refuses.

Some instructions belong to one compute capability alone, such as 9.0a, while the compiler aims at the family, 9.0. A
kernel writes them as comments of inline PTX, which the compiler leaves where they are::

    asm volatile("//@ wgmma.fence.sync.aligned;");

The program's binary is PTX, too. `with_instructions` turns the comments into instructions and names the capability, and
the driver builds a program from that.
"""

from __future__ import annotations

import re

#: What such a comment begins with.
MARK = "//@ "

_TARGET = re.compile(r"^(\.target\s+sm_\d+)\b(?!a)", re.MULTILINE)


def has_instructions(source: str) -> bool:
    """Tell whether a source in OpenCL C has such comments in inline PTX."""
    return f'"{MARK}' in source


def with_instructions(binary: bytes) -> bytes:
    """Return PTX whose comments that begin with `MARK` are instructions, for the capability that has them.

    Raises
    ------
    ValueError
        If the binary is no PTX, or its compiler has dropped the comments.
    """
    try:
        text = binary.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the driver's binary is no PTX: {error}") from None
    if MARK not in text:
        raise ValueError(f"the driver's PTX has lost the comments that begin with {MARK.strip()}")
    return _TARGET.sub(r"\1a", text).replace(MARK, "").encode()
