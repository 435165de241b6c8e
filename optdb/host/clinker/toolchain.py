"""Remembers what was found out about the compiler, so that a process starts none to find it out again.

Theano asks at each start which version the compiler has, which flags stand for ``-march=native``, and whether OpenMP
and a BLAS work. `Toolchain.answer` asks once, and keeps the answer on disk under a digest of what it depends on: the
compiler's file, this machine's processor, and the environment that compilers read. An upgrade of the compiler, or
another machine that shares the home folder, finds out for itself.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from optdb.user_cache import cache_dir, replace_file

__all__ = ["Toolchain", "file_stamp", "toolchain"]

#: Variables that change what GCC, Clang or the loader of programs find.
ENVIRONMENT = (
    *("PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "SYSROOT", "SDKROOT", "LANG", "LC_ALL"),
)


def file_stamp(path: str | os.PathLike[str]) -> tuple[str, int, int] | None:
    """Return what changes when a file is replaced: its real path, time and size; None where there is no file."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return os.path.realpath(path), stat.st_mtime_ns, stat.st_size


class Toolchain:
    """What is known of one compiler on this machine.

    Parameters
    ----------
    compiler : str
        Its name or path, as in ``config.cxx``.
    folder : Path, optional
        Where answers are kept; optdb's folder in the user's cache, unless another is given.
    """

    def __init__(self, compiler: str, folder: Path | None = None) -> None:
        self.compiler = compiler
        self.identity = _digest(_compiler_stamp(compiler), processor(), *(map(os.environ.get, ENVIRONMENT)))
        self._file = (folder or cache_dir()) / f"toolchain-{self.identity}.json"
        self._answers: dict[str, Any] | None = None

    def answer(self, question: Iterable[Any], find: Callable[[], Any]) -> Any:
        """Return the answer to a question: the one that was kept, or else what `find` finds, which is kept.

        Parameters
        ----------
        question : iterable
            What is asked, with all that the answer depends on beside the compiler; of objects that JSON has, or None.
        find : callable
            Finds the answer, an object that JSON has. What it raises is not kept.
        """
        if _compiler_stamp(self.compiler) is None:
            return find()
        key = _digest(*question)
        if self._answers is None:
            self._answers = self._read()
        if key not in self._answers:
            self._answers[key] = find()
            self._write()
        return self._answers[key]

    def _read(self) -> dict[str, Any]:
        try:
            answers = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return answers if isinstance(answers, dict) else {}

    def _write(self) -> None:
        """Keep all answers, those of other processes included, in one step."""
        answers = {**self._read(), **self._answers}
        try:
            replace_file(self._file, json.dumps(answers).encode())
        except OSError:
            # A read-only home costs the same questions at each start, and nothing else.
            return

    def library_stamps(self, flags: Iterable[str], folders: Iterable[str] = ()) -> list[Any]:
        """Return what changes when a library that the linker would take is installed, replaced or removed.

        Parameters
        ----------
        flags : iterable of str
            Flags for the linker; of these, each ``-l`` names a library, and each ``-L`` a folder.
        folders : iterable of str
            More folders that are searched.
        """
        flags = list(flags)
        named = [flag[2:] for flag in flags if flag.startswith("-L")]
        searched = [*folders, *named, *self._search_dirs()]
        names = [flag[2:] for flag in flags if flag.startswith("-l")]
        files = [Path(folder, f"lib{name}{end}") for name in names for folder in searched for end in _LIBRARY]
        return [stamp for stamp in map(file_stamp, files) if stamp]

    def _search_dirs(self) -> list[str]:
        return self.answer(["search dirs"], lambda: _library_dirs(self.compiler))


_LIBRARY = (".so", ".a", ".dylib")


@functools.lru_cache(maxsize=8)
def toolchain(compiler: str) -> Toolchain:
    """Return what is known of a compiler, read once in a process."""
    return Toolchain(compiler)


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Return what tells this machine's processor from others: the flags that ``-march=native`` stands for follow it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    telling = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU implementer", "CPU part")
    chosen = dict.fromkeys(line for line in lines if line.split("\t")[0].strip() in telling)
    # Virtual machines hide cache sizes that the compiler asks the processor for: the name stands for them.
    return "\n".join([platform.machine(), platform.node(), *chosen])


def _library_dirs(compiler: str) -> list[str]:
    """Ask a compiler where it looks for libraries."""
    try:
        done = subprocess.run(
            [compiler, "-print-search-dirs"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith("libraries:")]
    folders = [folder for line in lines for folder in line.partition("=")[2].split(os.pathsep)]
    return list(dict.fromkeys(map(os.path.realpath, folders)))


def _compiler_stamp(compiler: str) -> tuple[str, int, int] | None:
    path = shutil.which(compiler)
    return None if path is None else file_stamp(path)


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]
