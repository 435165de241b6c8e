"""Loads modules from translated source, and caches the compiled code on disk.

A cached result is valid for a source file (path, time, size), a Python version and a version of the translation.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from optdb import files, user_cache
from optdb.host.theano.importing.compat import libraries, translation, versions


class TranslatingLoader(SourceFileLoader):
    """Loads a module from its translated source."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the translated module's code, from the disk cache if possible."""
        path = self.get_filename(fullname)
        stats = self.path_stats(path)
        stamp = _stamp(stats["mtime"], stats["size"])
        cache_path = _cache_path(path)
        code = _read(cache_path, stamp)
        if code is None:
            code = self.source_to_code(self.get_data(path), path)
            # Ignore sys.dont_write_bytecode, which is meant for source folders.
            _write(cache_path, stamp, code)
        return code

    def source_to_code(  # type: ignore[override]  # a static method in one base, a method in another
        self, data: bytes, path: str, *, _optimize: int = -1
    ) -> CodeType:
        """Translate and compile source."""
        promoting = versions.needs_promotion()
        tree = translation.call_for_helpers(
            translation.translate(data, path, promoting, libraries.library_of(self.name)), promoting
        )
        with translation.ignoring_warnings_of_syntax():
            return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


def cache_dir() -> Path:
    """Return the cache folder for this Python and this translation."""
    flags = "promoting" if versions.needs_promotion() else "plain"
    folder = f"{sys.implementation.cache_tag}-{flags}-{translation.table_digest()}"
    return user_cache.cache_dir() / "translated" / folder


def _stamp(mtime: float, size: int) -> bytes:
    return importlib.util.MAGIC_NUMBER + f"{mtime!r} {size}".encode().ljust(48)


_folder: Path | None = None

_DIGEST_BYTES = 16
_MAX_BYTES = 1 << 26


def _cache_path(path: str) -> Path:
    global _folder
    if _folder is None:
        _folder = cache_dir()
    optimized = f".opt-{sys.flags.optimize}" if sys.flags.optimize else ""
    return _folder / f"{hashlib.sha256(path.encode()).hexdigest()[:24]}{optimized}.bin"


def _read(cache_path: Path, stamp: bytes) -> CodeType | None:
    try:
        content = files.read_file(cache_path, _MAX_BYTES)
    except OSError:
        return None
    begin = len(stamp) + _DIGEST_BYTES
    code = memoryview(content)[begin:]
    # Damaged code may crash the interpreter when it is read or run.
    if content[:begin] != _head(stamp, code):
        return None
    return marshal.loads(code)


def _head(stamp: bytes, code: bytes | memoryview) -> bytes:
    """Return the header of a cache file, including a digest that reveals damage to the code."""
    return stamp + hashlib.blake2b(code, digest_size=_DIGEST_BYTES).digest()


def _write(cache_path: Path, stamp: bytes, code: CodeType) -> None:
    """Write code to the cache atomically, since several processes may start at the same time."""
    try:
        content = marshal.dumps(code)
        files.replace_file(cache_path, _head(stamp, content) + content)
    except OSError as error:
        cost = "translates them again, which takes some seconds"
        user_cache.warn_unwritable("translated modules", cache_path.parent, error, cost)
