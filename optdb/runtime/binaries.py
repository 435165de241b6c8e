"""The on-disk cache of built programs.

Processes share the folder without locks. An entry is written atomically, and its key is a hash of everything that the
program was built from.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from optdb.callers import caller_level
from optdb.files import read_file, replace_file
from optdb.runtime.device_profiles import profile_of
from optdb.user_cache import cache_dir

#: Change this text whenever the format of entries changes, or how programs are built.
FORMAT = "optdb binary 1"

#: The default size limit of the folder, in megabytes.
DEFAULT_SIZE = 512

_MAGIC = FORMAT.encode().ljust(16)
_DIGEST = 16
#: The age in seconds at which a temporary file is assumed to be left over from a killed process.
_ABANDONED_AFTER_S = 3600

_current: Binaries | None = None


@dataclass(frozen=True)
class CachedFile:
    """A file in the folder."""

    path: Path
    size: int  #: In bytes.
    used: float  #: The time at which the file was last written or read.


class Binaries:
    """A folder of built programs that takes at most `megabytes`; a limit of 0 disables the folder.

    The first saved entry creates the folder.
    """

    def __init__(self, folder: Path, megabytes: int = DEFAULT_SIZE) -> None:
        self.folder = Path(folder)
        self.limit = megabytes * 2**20
        self._warned = False

    def load(self, key: str) -> bytes | None:
        """Return the binary stored under a key; None if it is missing or damaged."""
        if not self.limit:
            return None
        path = self._path(key)
        try:
            # An entry larger than the limit was written under a higher limit and will be evicted.
            content = read_file(path, self.limit)
        except OSError:
            return None
        begin = len(_MAGIC) + _DIGEST
        binary = content[begin:]
        if content[:begin] != _head(key, binary):
            self.discard(key)
            return None
        # Mark the entry as used, which fails in a read-only folder.
        with contextlib.suppress(OSError):
            os.utime(path)
        return binary

    def has(self, key: str) -> bool:
        """Return whether a key has an entry, even a damaged one."""
        return bool(self.limit) and self._path(key).is_file()

    def save(self, key: str, binary: bytes) -> None:
        """Store a binary, and evict other entries to make room; warn once if the folder is not writable."""
        content = _head(key, binary) + binary
        if len(content) > self.limit:
            return
        try:
            replace_file(self._path(key), content)
            self._make_room()
        except OSError as error:
            self.warn_unwritable(error)

    def discard(self, key: str) -> None:
        """Remove the entry stored under a key."""
        _remove(self._path(key))

    def entries(self) -> list[CachedFile]:
        """Return all entries, least recently used first."""
        return sorted(self._files(".bin"), key=lambda entry: entry.used)

    def clear(self) -> int:
        """Remove all entries and return how many there were."""
        entries = self.entries()
        for entry in entries:
            _remove(entry.path)
        self._clean_up()
        return len(entries)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.bin"

    def _make_room(self) -> None:
        self._clean_up()
        entries = self.entries()
        size = sum(entry.size for entry in entries)
        for entry in entries:
            if size <= self.limit:
                return
            _remove(entry.path)
            size -= entry.size

    def _clean_up(self) -> None:
        now = time.time()
        for file in self._files(".tmp"):
            if now - file.used > _ABANDONED_AFTER_S:
                _remove(file.path)

    def _files(self, suffix: str) -> list[CachedFile]:
        entries = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as files:
            for file in files:
                # Another process may have removed the file.
                with contextlib.suppress(FileNotFoundError):
                    if file.name.endswith(suffix):
                        # Do not follow symbolic links: the link itself is the entry.
                        state = file.stat(follow_symlinks=False)
                        entries.append(CachedFile(Path(file.path), state.st_size, state.st_mtime))
        return entries

    def warn_unwritable(self, error: OSError) -> None:
        """Warn once that the folder is not writable."""
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"built OpenCL programs cannot be saved in {self.folder} ({error.strerror or error}), so each process "
            "builds them again.\n"
            "The cure: name another folder (the flag optdb.kernel_cache_dir), or disable the cache "
            "(optdb.kernel_cache_size=0)",
            RuntimeWarning,
            stacklevel=caller_level(),
        )


def configure(folder: str | Path | None = None, megabytes: int = DEFAULT_SIZE) -> Binaries:
    """Set the folder for built programs and tuning results (by default in the user's cache), and its size limit."""
    global _current
    _current = Binaries(Path(folder).expanduser().absolute() if folder else cache_dir() / "kernels", megabytes)
    return _current


def current() -> Binaries:
    """Return the configured folder of built programs."""
    return _current if _current is not None else configure()


def for_device(device: Any) -> Binaries | None:
    """Return the folder for a device's programs; None if the programs are not cached."""
    folder = current()
    return None if not folder.limit or profile_of(device).quirks.keeps_binaries_itself else folder


def key_of(device: Any, source: str, options: Iterable[str]) -> str:
    """Return a hash of everything that a binary depends on; the source must not include other files."""
    # PyOpenCL appends this variable's value to the compiler options.
    added = os.environ.get("PYOPENCL_BUILD_OPTIONS", "")
    parts = [FORMAT, *astuple(profile_of(device).driver), added, *options, source]
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def _head(key: str, binary: bytes) -> bytes:
    return _MAGIC + hashlib.blake2b(key.encode() + binary, digest_size=_DIGEST).digest()


def _remove(path: Path) -> None:
    # Another process may have removed the file, or another user may own it.
    with contextlib.suppress(OSError):
        path.unlink()
