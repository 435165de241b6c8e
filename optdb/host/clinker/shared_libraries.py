"""Shared libraries whose end is missing, as a full disk or a machine without power leaves them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

__all__ = ["is_truncated"]

#: Of the header of a 64-bit ELF file, little-endian: where its table of sections begins, and its entries' size and
#: number.
_ELF64 = struct.Struct("<40sQ10xHH2x")


def is_truncated(path: Path) -> bool:
    """Return whether the end of a library is missing: the process would end by SIGBUS where it is used.

    In an ELF file, the table of sections is at the end. Files of other formats are left to the loader.
    """
    with path.open("rb") as file:
        header = file.read(_ELF64.size)
        size = os.fstat(file.fileno()).st_size
    if len(header) < _ELF64.size:
        return True
    if not header.startswith(b"\x7fELF\x02\x01"):
        return False
    sections_offset, section_size, sections = _ELF64.unpack(header)[1:]
    return size < sections_offset + section_size * sections
