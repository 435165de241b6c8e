"""Stores compiled modules atomically in Theano's compiledir, and finds them by content.

Theano stores a module in a folder ``tmp...`` of its compiledir, with the source code, the shared library, and the keys
(``key.pkl``). Theano's folder names are random. Here, a folder's name contains a digest of the module's hash, which
covers the source code, the flags and the versions, so that one file system look-up finds a module::

    compiledir/
        tmp<digest>/         a module: __init__.py, mod.cpp, <name>.so, key.pkl
        optdb/
            locks/           locks on the modules that are being compiled
            staging/         unfinished files, by process; renamed when they are complete
            headers/         precompiled headers

The modules of one translation unit share one library, which is hard-linked into each module's folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import secrets
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from theano.gof.cmodule import KeyData, get_lib_extension

from optdb.host.theano.clinker.locks import FileLock
from optdb.host.theano.importing.support import UnusableCompiledir

_DIGITS = 40

SECONDS_BETWEEN_CLEANUPS = 24 * 60 * 60

#: The maximum number of attempts to publish a module; an attempt fails if another process removes the module's folder.
MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class StoredModule:
    """The content of one module: its hash, its name, Theano's source code, and Theano's key."""

    module_hash: str
    name: str
    source: str
    key: Any


class ModuleStore:
    """The compiled modules in one compiledir."""

    def __init__(self, compiledir: str | os.PathLike[str]) -> None:
        self.compiledir = Path(compiledir)
        self.folder = self.compiledir / "optdb"
        self._stage: Stage | None = None
        # Maps each process to its own lock, because a thread may hold the parent's lock during a fork.
        self._locks: dict[int, threading.Lock] = {}

    def library(self, module_hash: str, name: str) -> Path:
        """Return the path of a module's shared library, which may not exist."""
        digest = hashlib.sha256(module_hash.encode()).hexdigest()[:_DIGITS]
        return self.compiledir / f"tmp{digest}" / f"{name}.{get_lib_extension()}"

    def is_own(self, folder: str) -> bool:
        """Return whether a folder was named by this class, not by Theano."""
        return len(folder) == len("tmp") + _DIGITS

    def lock(self, name: str) -> FileLock:
        """Return the lock called `name`."""
        return FileLock(self.folder / "locks" / f"{name}.lock")

    def stage(self) -> Stage:
        """Return this process's folder for unfinished files; remove the folders of dead processes."""
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            if self._stage is None or not self._stage.is_ours():
                self._remove_abandoned()
                self._stage = Stage(self.folder / "staging")
            return self._stage

    def close(self) -> None:
        """Remove this process's stage."""
        if self._stage is not None and self._stage.is_ours():
            self._stage.close()
            self._remove_abandoned()
        self._stage = None

    def _remove_abandoned(self) -> None:
        _remove_abandoned(self.folder / "staging")
        _remove_abandoned(self.folder / "locks")

    def publish(self, module: StoredModule, library: Path) -> Path:
        """Store a module, whose library is `library`, in its final folder; return the stored library's path.

        Another process may have stored the module first.

        Raises
        ------
        UnusableCompiledir
            If the folder exists without the library and cannot be removed.
        """
        target = self.library(module.module_hash, module.name)
        for _ in range(MAX_ATTEMPTS):
            self._publish(module, library, target)
            if target.exists():
                return target
            # The folder contains the remains of a partly removed module.
            shutil.rmtree(target.parent, ignore_errors=True)
        raise UnusableCompiledir(f"{target.parent} has no {target.name}, so it is not removed")

    def _publish(self, module: StoredModule, library: Path, target: Path) -> None:
        draft = self.stage().folder()
        key_data = KeyData({module.key}, module.module_hash, str(target.parent / "key.pkl"), str(target))
        (draft / "mod.cpp").write_text(module.source)
        (draft / "__init__.py").touch()
        (draft / "key.pkl").write_bytes(_pickled(key_data))
        link(library, draft / target.name)
        rename(draft, target.parent)

    def clean_up(self, max_age_s: float) -> None:
        """Remove files of dead processes and, once a day, modules last read more than `max_age_s` seconds ago."""
        # Remove abandoned files at each clean-up, because a compiling process may have been killed.
        self._remove_abandoned()
        stamp = self.folder / "cleaned"
        now = time.time()
        try:
            # If the stamp is in the future, the clock was set back.
            if 0 <= now - stamp.stat().st_mtime < SECONDS_BETWEEN_CLEANUPS:
                return
        except FileNotFoundError:
            if not self.folder.is_dir():
                return
        try:
            stamp.touch()
        except OSError:  # a full or read-only disk; another process cleans up later
            return
        for library in self.compiledir.glob(f"tmp*/*.{get_lib_extension()}"):
            with contextlib.suppress(FileNotFoundError):  # another process may remove the library
                if now - library.stat().st_atime > max_age_s:
                    shutil.rmtree(library.parent, ignore_errors=True)


class Stage:
    """A folder for a process's unfinished files; other processes remove it after the process has died."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self._process = os.getpid()
        # Create the lock before the folder, so that no process considers the folder abandoned.
        self._lock = FileLock(parent / f"{self._process}-{secrets.token_hex(8)}.lock")
        self._lock.acquire()
        self.root = self._lock.path.with_suffix("")
        self.root.mkdir()

    def is_ours(self) -> bool:
        """Return whether this process, not its parent, created the folder."""
        return self._process == os.getpid() and self.root.is_dir()

    def folder(self) -> Path:
        """Create a folder inside this folder, with a name like Theano's."""
        return Path(tempfile.mkdtemp(prefix="tmp", dir=self.root))

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._lock.release(remove=True)


def rename(draft: Path, target: Path) -> None:
    """Rename `draft` to `target` atomically; if `target` exists, remove `draft` instead."""
    try:
        draft.chmod(0o777 & ~_umask())
        draft.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(draft, ignore_errors=True)


def _umask() -> int:
    """Return the process's umask, which mkdtemp ignores."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _pickled(key_data: KeyData) -> bytes:
    """Pickle keys as Theano does; drop keys that cannot be pickled, since their modules are found by content."""
    try:
        return pickle.dumps(key_data, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):  # an op may be nested too deeply
        bare = KeyData(set(), key_data.module_hash, key_data.key_pkl, key_data.entry)
        return pickle.dumps(bare, protocol=pickle.HIGHEST_PROTOCOL)


def link(library: Path, target: Path) -> None:
    """Hard-link or copy a file to another path."""
    try:
        target.hardlink_to(library)
    except OSError:
        # Some file systems support no hard links, or only a few per file.
        shutil.copyfile(library, target)


def _remove_abandoned(parent: Path) -> None:
    """Remove the locks of dead processes, and the folders with the same names."""
    for path in parent.glob("*.lock"):
        lock = FileLock(path)
        if lock.acquire(blocking=False):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            lock.release(remove=True)
