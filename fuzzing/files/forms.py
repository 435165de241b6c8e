"""Writes a mutant to a path: a file with its content, or something that is not a regular file."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from fuzzing.files.mutants import Mutant

__all__ = ["remove", "write"]

_LINKS = {"zeros": "/dev/zero", "null": "/dev/null", "terminal": "/dev/tty", "memory": "/proc/self/status"}


def write(made: Mutant, path: Path) -> None:
    """Write a mutant to a path, replacing the previous one.

    The socket of a mutant is bound with a relative path, since its address has at most 107 bytes.
    """
    remove(path)
    if made.form in ("file", "sparse"):
        with path.open("wb") as file:
            file.write(made.content)
            file.truncate(max(made.nbytes, len(made.content)))
    elif made.form == "link":
        _target(path).write_bytes(made.content)
        path.symlink_to(_target(path))
    elif made.form == "fifo":
        os.mkfifo(path)
    elif made.form == "folder":
        path.mkdir()
    elif made.form == "loop":
        path.symlink_to(path)
    elif made.form == "socket":
        with socket.socket(socket.AF_UNIX) as server, _working_in(path.parent):
            server.bind(path.name)
    elif made.form != "missing":
        path.symlink_to(_LINKS[made.form])


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Change to a folder, so that the path of a socket is short."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def remove(path: Path) -> None:
    """Remove the mutant at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    _target(path).unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Return the target of a mutant that is a symbolic link."""
    return path.with_suffix(".target")
