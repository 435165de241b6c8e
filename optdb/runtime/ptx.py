"""Instructions of NVIDIA's GPUs that the driver's OpenCL compiler rejects.

Some instructions belong to one architecture-specific target, such as 9.0a, while the compiler targets 9.0. A kernel
contains them as comments in inline PTX, which the compiler keeps in place::

    asm volatile("//@ wgmma.fence.sync.aligned;");

The program's binary is PTX. `with_instructions` turns the comments into instructions and changes the target, and the
driver builds a program from the result.
"""

from __future__ import annotations

import re

#: The prefix of such a comment.
MARK = "//@ "

_TARGET = re.compile(r"^(\.target\s+sm_\d+)\b(?!a)", re.MULTILINE)


def has_instructions(source: str) -> bool:
    """Tell whether an OpenCL C source has such comments in inline PTX."""
    return f'"{MARK}' in source


def with_instructions(binary: bytes) -> bytes:
    """Turn comments that begin with `MARK` into instructions, for the target that has them; return the PTX.

    Raises
    ------
    ValueError
        If the binary is not PTX, or the compiler has dropped the comments.
    """
    try:
        text = binary.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the driver's binary is no PTX: {error}") from None
    if MARK not in text:
        raise ValueError(f"the driver's PTX has lost the comments that begin with {MARK.strip()}")
    return _TARGET.sub(r"\1a", text).replace(MARK, "").encode()
