"""Caches properties of the compiler on disk, so that later processes need not query the compiler.

The cache file's name contains a digest of what the answers depend on: the compiler's file, the processor, and the
environment variables that compilers read.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from optdb import trace_log
from optdb.files import check_folder, read_file, replace_file
from optdb.host.theano.clinker.locks import FileLock
from optdb.json_text import parse_json
from optdb.user_cache import cache_dir, warn_unwritable

#: Environment variables that change the search paths of GCC, Clang or the dynamic loader.
ENVIRONMENT = (
    *("PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "SYSROOT", "SDKROOT", "LANG", "LC_ALL"),
)
_MAX_BYTES = 1 << 22
_TEMPORARY_BYTES = 1 << 20
_COST = "queries the compiler again, which takes seconds"


def file_stamp(path: str | os.PathLike[str]) -> tuple[str, int, int] | None:
    """Return a file's real path, time and size; None if there is no file."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return os.path.realpath(path), stat.st_mtime_ns, stat.st_size


class Toolchain:
    """The cached properties of one compiler on this machine."""

    def __init__(self, compiler: str, folder: Path | None = None) -> None:
        self.compiler = compiler
        self.identity = _digest(_compiler_stamp(compiler), processor(), *(map(os.environ.get, ENVIRONMENT)))
        self._file = (folder or cache_dir()) / f"toolchain-{self.identity}.json"
        self._answers: dict[str, Any] | None = None
        self._mutex = threading.RLock()
        self._is_asking = False

    def answer(self, question: Iterable[Any], find: Callable[[], Any]) -> Any:
        """Return the cached answer to a question; if there is none, cache the result of `find`.

        The question must contain everything that the answer depends on. The question and the answer are JSON values.
        """
        if _compiler_stamp(self.compiler) is None:
            return find()
        question = list(question)
        key = _digest(*question)
        if self._answers is None:
            self._answers = self._read()
        if key not in self._answers:
            with self._asking():
                self._answers.update(self._read())
                if key not in self._answers:
                    with trace_log.compiler_run("C compiler", lambda: f"a query: {question[0]}"):
                        self._answers[key] = find()
                    self._write()
        return self._answers[key]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Let only one process query the compiler; the processes that wait then find the cached answers."""
        with self._mutex:
            if self._is_asking:  # answering one question may require the answer to another question
                yield
                return
            lock = FileLock(self._file.with_suffix(".lock"))
            with suppress(OSError):  # without a lock, each process queries the compiler
                lock.acquire()
            self._is_asking = True
            try:
                yield
            finally:
                self._is_asking = False
                lock.release(remove=True)

    def _read(self) -> dict[str, Any]:
        try:
            content = parse_json(read_file(self._file, _MAX_BYTES))
        except (OSError, ValueError):
            return {}
        answers = content.get("answers") if isinstance(content, dict) else None
        # A damaged answer would be passed to the compiler as a flag.
        if not isinstance(answers, dict) or content.get("digest") != _digest(answers):
            return {}
        return answers

    def _write(self) -> None:
        if not _compiler_has_room():
            return
        answers = {**self._read(), **(self._answers or {})}
        try:
            replace_file(self._file, json.dumps({"digest": _digest(answers), "answers": answers}).encode())
        except OSError as error:
            warn_unwritable("the compiler's answers", self._file.parent, error, _COST)

    def library_stamps(self, flags: Iterable[str]) -> list[Any]:
        """Return the stamps of the libraries that the linker may find with these flags (``-l`` and ``-L``)."""
        flags = list(flags)
        named = [flag[2:] for flag in flags if flag.startswith("-L")]
        searched = [*named, *self._search_dirs()]
        names = [flag[2:] for flag in flags if flag.startswith("-l")]
        files = [Path(folder, f"lib{name}{end}") for name in names for folder in searched for end in _LIBRARY]
        return [stamp for stamp in map(file_stamp, files) if stamp]

    def _search_dirs(self) -> list[str]:
        return self.answer(["search dirs"], lambda: _library_dirs(self.compiler))


_LIBRARY = (".so", ".a", ".dylib")


@functools.lru_cache(maxsize=8)
def toolchain(compiler: str) -> Toolchain:
    """Return the `Toolchain` of a compiler, cached in the process."""
    return Toolchain(compiler)


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Return a string that identifies the processor, which determines the flags of ``-march=native``."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    names = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU implementer", "CPU part")
    chosen = dict.fromkeys(line for line in lines if line.split("\t")[0].strip() in names)
    # Include the host name: in virtual machines, /proc/cpuinfo lacks cache sizes that the compiler uses.
    return "\n".join([platform.machine(), platform.node(), *chosen])


def _library_dirs(compiler: str) -> list[str]:
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


def _compiler_has_room() -> bool:
    """Return whether a compiler can write its temporary files; otherwise, its answers may be wrong."""
    # Do not use `tempfile.gettempdir`, which skips a folder on a full disk.
    folder = Path(next(filter(None, map(os.environ.get, ("TMPDIR", "TMP", "TEMP"))), "/tmp"))
    try:
        check_folder(folder, _TEMPORARY_BYTES)
    except OSError as error:
        warn_unwritable("the compiler's temporary files", folder, error, _COST, "TMPDIR")
        return False
    return True


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]
