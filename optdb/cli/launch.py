"""Runs an unmodified script or module, so that it cannot tell the difference.

`launch` puts a fresh ``__main__`` module, ``sys.argv`` and ``sys.path`` in place as python
does, and executes the code in it. The script's exceptions go up to the interpreter, which
ends the process as it always does (exit codes, SystemExit, signals); only the frames above
the script are taken out of the traceback it prints.
"""

from __future__ import annotations

import io
import os
import runpy
import sys
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType


def launch(target: str, args: Sequence[str], *, is_module: bool = False) -> None:
    """Run a script, or a module, as ``__main__``.

    Parameters
    ----------
    target : str
        What follows ``python``, or ``python -m``: the path of a script, or of a folder or
        zip file with a ``__main__.py`` in it; or the name of a module.
    args : sequence of str
        What follows that.
    is_module : bool
        Whether `target` is the name of a module.
    """
    if is_module:
        _set_up(path=str(Path.cwd()), argv=["-m", *args])
        _execute(lambda: _run_module(target))
    elif Path(target).is_dir() or zipfile.is_zipfile(target):
        _set_up(path=_absolute(target), argv=[target, *args])
        _execute(lambda: _run_module("__main__", alter_argv=False))
    else:
        _launch_script(target, args)


def _launch_script(target: str, args: Sequence[str]) -> None:
    path = _absolute(target)
    source = _read(path)
    main = _set_up(path=str(Path(target).resolve().parent), argv=[target, *args])
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__file__ = path
    main.__cached__ = None
    _execute(lambda: _run_source(source, path, main))


# What python itself calls for "-m", and for a folder; it executes in sys.modules["__main__"].
_run_module = runpy._run_module_as_main


def _run_source(source: bytes, path: str, main: ModuleType) -> None:
    exec(compile(source, path, "exec", dont_inherit=True), vars(main))


def _set_up(path: str, argv: list[str]) -> ModuleType:
    """Put a new ``__main__`` in place, which pickle and multiprocessing will look into."""
    main = ModuleType("__main__")
    main.__annotations__ = {}
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = main
    sys.argv[:] = argv
    # Where python puts the script's folder, unless it was told not to (-P, since 3.11).
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = path
    return main


def _execute(action: Callable[[], None]) -> None:
    """Do the action; have what it raises printed without the frames above it."""
    try:
        action()
    except BaseException:
        # The script may have set a hook of its own, which is then the one to call.
        sys.excepthook = _from_script_on(sys.excepthook)
        raise


def _from_script_on(excepthook: Callable[..., object]) -> Callable[..., object]:
    """Make an excepthook that leaves out the frames down to the script."""

    def hook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> object:
        below = _below(tb)
        return excepthook(kind, error.with_traceback(below), below)

    return hook


def _below(tb: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback below the last frame of this module."""
    below = tb
    while tb is not None:
        if tb.tb_frame.f_globals is globals():
            below = tb.tb_next
        tb = tb.tb_next
    return below


def _absolute(path: str) -> str:
    """Make a path absolute as python does: what the user wrote stays, "./" and ".." with it."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118


def _read(path: str) -> bytes:
    """Read a script; where that fails, exit as python does."""
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
