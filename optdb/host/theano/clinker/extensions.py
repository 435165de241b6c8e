"""Builds the modules that Theano compiles for itself: its virtual machine, Scan's loop, and the caller of C thunks.

Theano compiles each on first import, under the lock of the whole compiledir, into the folder where other processes look
for it. Here a process waits only for another process that builds the same module, and the shared library appears
atomically.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from optdb.host.theano.clinker.extension_folders import EXTENSIONS, is_built, remove_truncated
from optdb.host.theano.clinker.locks import FileLock
from optdb.host.theano.importing.support import writing_compiledir

__all__ = ["build_alone"]


@contextmanager
def build_alone(module: ModuleType) -> Iterator[None]:
    """Import one of `EXTENSIONS` in the block, under a lock of its own."""
    from theano.gof import cmodule, compilelock

    from optdb.host.theano.clinker import plug

    config = cmodule.config
    if not config.cxx or not plug.is_wanted():
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
    """Replace Theano's lock."""


def _cheaper(module_name: str, flags: list[str], is_debugged: bool) -> list[str]:
    """Return a compiler's flags for an extension: without debug symbols, and Scan's loop with less optimization.

    Cython wrote Scan's loop: 15,000 lines that call Python. With ``-O2`` they take the compiler nearly twice as long as
    with ``-O1``, and the loop takes the same time.
    """
    if module_name == EXTENSIONS["theano.scan_module.scan_perform_ext"]:
        flags = ["-O1" if flag == "-O2" else flag for flag in flags]
    return [*flags, *([] if is_debugged else ["-g0"])]


def _aside(compile_str: Callable[..., Any], compiledir: Path) -> Callable[..., Any]:
    """Return a `compile_str` that compiles in a staging folder and then moves the library to Theano's folder."""

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
