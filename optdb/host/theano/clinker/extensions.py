"""Builds Theano's own extension modules: its virtual machine, Scan's loop, and the caller of C thunks.

Each extension has its own lock instead of the compiledir's lock, and its shared library appears atomically.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from optdb.files import is_truncated
from optdb.host.theano.clinker.locks import FileLock
from optdb.host.theano.importing.support import writing_compiledir

#: Maps a Theano module that compiles an extension on import to the extension's folder.
EXTENSIONS = {
    "theano.gof.cutils": "cutils_ext",
    "theano.gof.lazylinker_c": "lazylinker_ext",
    "theano.scan_module.scan_perform_ext": "scan_perform",
}
_WITHOUT_VERSION = "cutils_ext"


def remove_truncated(compiledir: Path, name: str) -> None:
    """Remove an extension if its library is truncated, so that Theano compiles it again."""
    folder = compiledir / name
    if any(is_truncated(library) for library in folder.glob(f"{name}.*")):
        shutil.rmtree(folder, ignore_errors=True)


def is_built(compiledir: Path, name: str) -> bool:
    """Return whether an extension is complete, as shown by its version file."""
    folder = compiledir / name
    if not any(folder.glob(f"{name}.*")):
        return False
    version = folder / "__init__.py"
    return name == _WITHOUT_VERSION or (version.exists() and version.stat().st_size > 0)


@contextmanager
def build_alone(module: ModuleType) -> Iterator[None]:
    """Hold the lock of one of `EXTENSIONS` while the block imports the extension."""
    from theano.gof import cmodule, compilelock

    config = cmodule.config
    if not config.cxx or config.optdb.clinker is False:
        yield
        return
    name = EXTENSIONS[module.__name__]
    compiledir = Path(config.compiledir)
    get_lock, release_lock = compilelock.get_lock, compilelock.release_lock
    compile_str = cmodule.GCC_compiler.compile_str
    compilelock.get_lock = compilelock.release_lock = _do_nothing
    cmodule.GCC_compiler.compile_str = staticmethod(_aside(compile_str, compiledir))
    lock = FileLock(compiledir / "optdb" / "locks" / f"{name}.lock")
    remove_truncated(compiledir, name)
    is_there = is_built(compiledir, name)
    try:
        with writing_compiledir(compiledir):
            if not is_there:
                lock.acquire()
            yield
    finally:
        lock.release(remove=True)
        compilelock.get_lock, compilelock.release_lock = get_lock, release_lock
        cmodule.GCC_compiler.compile_str = staticmethod(compile_str)


def _do_nothing(*args: Any, **options: Any) -> None:
    pass


def _cheaper(module_name: str, flags: list[str], is_debugged: bool) -> list[str]:
    """Return an extension's compiler flags: no debug symbols, and ``-O1`` for Scan's loop.

    Scan's loop has 15,000 lines that call Python; with ``-O2``, it takes twice as long to compile and is not faster.
    """
    if module_name == EXTENSIONS["theano.scan_module.scan_perform_ext"]:
        flags = ["-O1" if flag == "-O2" else flag for flag in flags]
    return [*flags, *([] if is_debugged else ["-g0"])]


def _aside(compile_str: Callable[..., Any], compiledir: Path) -> Callable[..., Any]:
    """Return a `compile_str` that compiles in a staging folder, then moves the library."""

    @functools.wraps(compile_str)
    def compiled(
        module_name: str, src_code: str, location: str, *args: Any, py_module: bool = True, **options: Any
    ) -> Any:
        from theano.gof.cmodule import config, dlimport

        from optdb.host.theano.clinker.store import ModuleStore

        store = ModuleStore(compiledir)
        try:
            folder = store.stage().folder()
            options["preargs"] = _cheaper(module_name, options.get("preargs") or [], config.cmodule.debug)
            compile_str(module_name, src_code, str(folder), *args, py_module=False, **options)
            (library,) = (path for path in folder.iterdir() if path.name.startswith(f"{module_name}."))
            shutil.copyfile(folder / "mod.cpp", Path(location, "mod.cpp"))
            target = Path(location, library.name)
            library.replace(target)
        finally:
            store.close()
        Path(location, "__init__.py").touch()
        return dlimport(str(target)) if py_module else None

    return compiled
