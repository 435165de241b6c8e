"""Reads and replaces files that other processes, possibly of other users, may have written.

This module imports nothing from optdb, so that every package can import it.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import tempfile
from pathlib import Path
from shutil import disk_usage

__all__ = [
    "ChangedFileError",
    "FileTooLargeError",
    "NotAFileError",
    "check_folder",
    "is_truncated",
    "read_file",
    "replace_file",
]

# O_NONBLOCK: opening a FIFO without a writer does not block. O_NOCTTY: opening a terminal does not make it this
# process's controlling terminal. O_BINARY: Windows does not convert line endings. A system that lacks one of these
# flags does not need it.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))

#: The header of a 64-bit little-endian ELF file: the section table's offset, the size of its entries, and their number.
_ELF64 = struct.Struct("<40sQ10xHH2x")


class NotAFileError(OSError):
    """Raised if a path refers to a FIFO, a device, a socket or a folder."""


class FileTooLargeError(OSError):
    """Raised if a file is larger than the caller allows; `nbytes` is the file's size."""

    def __init__(self, nbytes: int, path: Path) -> None:
        super().__init__(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        self.nbytes = nbytes


class ChangedFileError(OSError):
    """Raised if a file became shorter or longer while it was read."""


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes. Symbolic links are followed.

    The kind and the size of the opened file are checked, so replacing the file after the check has no effect.

    Raises
    ------
    NotAFileError, FileTooLargeError
        If the path does not refer to a regular file of at most `max_bytes` bytes, including holes. Nothing was read.
    ChangedFileError
        If another process changed the file's size during the read.
    OSError
        If the file cannot be opened or read.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        nbytes = _size(descriptor, path, max_bytes)
        # Files in /proc have size 0 but may have unlimited content, so they are not read.
        content = _read(descriptor, nbytes + 1) if nbytes else b""
    finally:
        os.close(descriptor)
    if len(content) != nbytes:
        raise ChangedFileError(errno.EBUSY, "was changed while it was read", str(path))
    return content


def _size(descriptor: int, path: Path, max_bytes: int) -> int:
    """Return the size of an open file; raise an error if it must not be read."""
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise NotAFileError(errno.EINVAL, "is not a regular file", str(path))
    if state.st_size > max_bytes:
        raise FileTooLargeError(state.st_size, path)
    return state.st_size


def _read(descriptor: int, nbytes: int) -> bytes:
    """Return `nbytes` bytes of an open file, or fewer if the file ends earlier."""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(nbytes)


def check_folder(folder: Path, nbytes: int = 1) -> None:
    """Create a folder if it does not exist; raise OSError if no file of `nbytes` bytes can be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    if disk_usage(folder).free < nbytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(b"\0")  # when the quota is used up, empty files can still be created


def replace_file(path: Path, content: bytes | memoryview, is_durable: bool = False) -> None:
    """Write a file atomically: other processes read either the old content or the complete new content.

    The file's folder is created if it does not exist. If `is_durable` is true, wait until the file is on the disk. If
    the file cannot be written, raise OSError and leave no temporary file.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if is_durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_truncated(path: Path) -> bool:
    """Return whether the end of a shared library is missing; using such a library ends the process with SIGBUS.

    A full disk or a power failure can leave such files behind. In an ELF file, the section table is at the end. For
    files of other formats, return False, and leave the check to the loader.
    """
    with path.open("rb") as file:
        header = file.read(_ELF64.size)
        size = os.fstat(file.fileno()).st_size
    if len(header) < _ELF64.size:
        return True
    if not header.startswith(b"\x7fELF\x02\x01"):
        return False
    sections_offset, section_size, sections = _ELF64.unpack(header)[1:]
    return bool(size < sections_offset + section_size * sections)
