"""Puts compiled modules into Theano's compiledir, each in one step, and finds them there by their content.

Theano keeps a module in a folder ``tmp...`` of its compiledir, with the source code, the shared library, and the keys
that stand for it (``key.pkl``). Theano names these folders at random; here the name follows from the module's hash (of
the source code, the flags and the versions), so that a module is found by one look at the file system::

    compiledir/
        tmp<digest>/         a module: __init__.py, mod.cpp, <name>.so, key.pkl
        optdb/
            locks/           who compiles what, while it is compiled
            staging/         what is being made, by process; renamed into place when it is whole
            headers/         precompiled headers

The modules of one translation unit are one shared library, hard-linked into the folder of each.
"""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from theano.gof.cmodule import KeyData, get_lib_extension

from optdb.host.clinker.locks import FileLock

__all__ = ["ModuleStore", "Stage", "StoredModule", "link", "rename"]

#: Digits of a module's hash in its folder's name.
_DIGITS = 40

#: How long nobody looks for old modules after somebody did.
SECONDS_BETWEEN_CLEANUPS = 24 * 60 * 60


@dataclass(frozen=True)
class StoredModule:
    """What is written for one module.

    Parameters
    ----------
    module_hash : str
        Of all that decides what is in it, see ``theano.gof.cmodule.get_module_hash``.
    name : str
        The module's name, which its init function has, too.
    source : str
        Theano's source code.
    key : tuple
        Theano's key.
    """

    module_hash: str
    name: str
    source: str
    key: Any


class ModuleStore:
    """The compiled modules in one compiledir.

    Parameters
    ----------
    compiledir : str or Path
        Theano's.
    """

    def __init__(self, compiledir: str | os.PathLike[str]) -> None:
        self.compiledir = Path(compiledir)
        self.own = self.compiledir / "optdb"
        self._stage: Stage | None = None

    def library(self, module_hash: str, name: str) -> Path:
        """Return where a module's shared library is, or will be."""
        digest = hashlib.sha256(module_hash.encode()).hexdigest()[:_DIGITS]
        return self.compiledir / f"tmp{digest}" / f"{name}.{get_lib_extension()}"

    def is_own(self, folder: str) -> bool:
        """Tell whether a folder has a name that this class gives, and not one of Theano's."""
        return len(folder) == len("tmp") + _DIGITS

    def lock(self, name: str) -> FileLock:
        """Return the lock of what is called `name`."""
        return FileLock(self.own / "locks" / f"{name}.lock")

    def stage(self) -> Stage:
        """Return this process's place for what is being made; what dead processes left is removed before."""
        if self._stage is None or not self._stage.is_ours():
            self._remove_abandoned()
            self._stage = Stage(self.own / "staging")
        return self._stage

    def close(self) -> None:
        """Remove this process's stage."""
        if self._stage is not None and self._stage.is_ours():
            self._stage.close()
            self._remove_abandoned()
        self._stage = None

    def _remove_abandoned(self) -> None:
        _remove_abandoned(self.own / "staging")
        _remove_abandoned(self.own / "locks")

    def publish(self, module: StoredModule, library: Path) -> Path:
        """Put a module in its place.

        Parameters
        ----------
        module : StoredModule
            What to write.
        library : Path
            A shared library with the module in it, on the same file system.

        Returns
        -------
        Path
            Its shared library: this one, or another process's.
        """
        place = self.library(module.module_hash, module.name)
        draft = self.stage().folder()
        key_data = KeyData({module.key}, module.module_hash, str(place.parent / "key.pkl"), str(place))
        (draft / "mod.cpp").write_text(module.source)
        (draft / "__init__.py").touch()
        (draft / "key.pkl").write_bytes(_pickled(key_data))
        link(library, draft / place.name)
        rename(draft, place.parent)
        if not place.exists():
            # What stood there is a module that somebody removed in part.
            shutil.rmtree(place.parent, ignore_errors=True)
            return self.publish(module, library)
        return place

    def clean_up(self, max_age_s: float) -> None:
        """Remove what dead processes left, and, once a day for all processes, modules that nobody has read for long.

        Parameters
        ----------
        max_age_s : float
            How long, in seconds.
        """
        # Also where nothing had to be compiled: whoever was killed may have been the last to compile.
        self._remove_abandoned()
        stamp = self.own / "cleaned"
        now = time.time()
        try:
            if now - stamp.stat().st_mtime < SECONDS_BETWEEN_CLEANUPS:
                return
        except FileNotFoundError:
            if not self.own.is_dir():
                return
        stamp.touch()
        for library in self.compiledir.glob(f"tmp*/*.{get_lib_extension()}"):
            if now - library.stat().st_atime > max_age_s:
                shutil.rmtree(library.parent, ignore_errors=True)


class Stage:
    """A folder for what a process is making; other processes remove it once this one is dead.

    Parameters
    ----------
    parent : Path
        The folder of all stages.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self._process = os.getpid()
        # The lock is there before the folder: nobody takes the folder for one that is abandoned.
        self._lock = FileLock(Path(tempfile.mktemp(prefix=f"{self._process}-", suffix=".lock", dir=parent)))
        self._lock.acquire()
        self.root = self._lock.path.with_suffix("")
        self.root.mkdir()

    def is_ours(self) -> bool:
        """Tell whether this process made it, and not one that this one was forked from."""
        return self._process == os.getpid() and self.root.is_dir()

    def folder(self) -> Path:
        """Make a folder in it; one whose name Theano would give to a module."""
        return Path(tempfile.mkdtemp(prefix="tmp", dir=self.root))

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._lock.release(remove=True)


def rename(draft: Path, place: Path) -> None:
    """Put a folder in its place in one step, unless there is one: then the draft is removed."""
    try:
        draft.chmod(0o777 & ~_umask())
        draft.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(draft, ignore_errors=True)


def _umask() -> int:
    """Return the process's umask, which mkdtemp does not follow."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _pickled(key_data: KeyData) -> bytes:
    """Pickle keys as Theano does; a module whose key does not pickle is found by its content alone."""
    try:
        return pickle.dumps(key_data, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        bare = KeyData(set(), key_data.module_hash, key_data.key_pkl, key_data.entry)
        return pickle.dumps(bare, protocol=pickle.HIGHEST_PROTOCOL)


def link(library: Path, place: Path) -> None:
    """Let a file be in another place, too."""
    try:
        place.hardlink_to(library)
    except OSError:
        # File systems without hard links, or with few for each file.
        shutil.copyfile(library, place)


def _remove_abandoned(parent: Path) -> None:
    """Remove the locks of processes that are dead, and the folders of the same names."""
    for path in parent.glob("*.lock"):
        lock = FileLock(path)
        if lock.acquire(blocking=False):
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            lock.release(remove=True)
