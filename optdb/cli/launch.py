"""Runs an unmodified script or module as python itself would.

The script's exceptions propagate to the interpreter. The printed traceback omits the frames above the script. For a
mistake in a flag or in a device's name (`USER_ERRORS`), the traceback shows only the script's own frames, because the
message contains the fix.
"""

from __future__ import annotations

import io
import itertools
import os
import runpy
import sys
import traceback
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from optdb.flags import FlagError
from optdb.host.theano.importing.support import UnsupportedHost, UnusableCompiledir, UnusableCompiler
from optdb.runtime.errors import DeviceError

#: Errors in the user's settings or installation, which a traceback into Theano and optdb does not explain.
USER_ERRORS = (FlagError, DeviceError, UnsupportedHost, UnusableCompiledir, UnusableCompiler)

#: The traceback of a `USER_ERRORS` error ends before the first frame in these folders.
_INTERNALS = tuple(f"{os.sep}{package}{os.sep}" for package in ("optdb", "theano"))


def launch(target: str, args: Sequence[str], *, is_module: bool = False) -> None:
    """Run a script, a folder or zip file with a ``__main__.py``, or a module, as ``__main__``."""
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
    vars(main)["__cached__"] = None
    _execute(lambda: _run_source(source, path, main))


# The function that python itself calls for "-m" and for a folder.
_run_module = runpy._run_module_as_main  # type: ignore[attr-defined]  # private, and missing from typeshed


def _run_source(source: bytes, path: str, main: ModuleType) -> None:
    exec(compile(source, path, "exec", dont_inherit=True), vars(main))


def _set_up(path: str, argv: list[str]) -> ModuleType:
    """Install a new ``__main__`` module, because pickle and multiprocessing look up names in it."""
    main = ModuleType("__main__")
    main.__annotations__ = {}
    vars(main)["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    sys.argv[:] = argv
    # Python puts the script's folder at the start of ``sys.path``, unless -P is given (since 3.11).
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = path
    return main


def _execute(action: Callable[[], None]) -> None:
    """Run the action; if it raises, print the traceback without the frames above the action."""
    try:
        action()
    except BaseException:
        # Call the script's own hook if it has set one.
        sys.excepthook = _from_script_on(sys.excepthook)
        raise


def _from_script_on(excepthook: Callable[..., object]) -> Callable[..., object]:
    """Return an excepthook that omits the frames above the script."""

    def hook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> object:
        below = _below(tb)
        if isinstance(error, USER_ERRORS) and _is_standard(excepthook):
            _print_briefly(error, below)
            return None
        return excepthook(kind, error.with_traceback(below), below)

    return hook


def _is_standard(excepthook: Callable[..., object]) -> bool:
    """Return whether the hook is Python's own or Theano's extension of it."""
    return excepthook is sys.__excepthook__ or getattr(excepthook, "__module__", "").startswith("theano.")


def _print_briefly(error: BaseException, tb: TracebackType | None) -> None:
    """Print an error and its frames in the script."""
    frames = list(itertools.takewhile(lambda frame: not _is_internal(frame.filename), traceback.extract_tb(tb)))
    if frames:
        print("Traceback (most recent call last):", file=sys.stderr)
        print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
    print(f"{type(error).__name__}: {error}", file=sys.stderr)


def _is_internal(path: str) -> bool:
    return path.startswith("<frozen") or any(folder in path for folder in _INTERNALS)


def _below(tb: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that follows the last frame of this module."""
    below = tb
    while tb is not None:
        if tb.tb_frame.f_globals is globals():
            below = tb.tb_next
        tb = tb.tb_next
    return below


def _absolute(path: str) -> str:
    """Make a path absolute without resolving "./" and "..", as python does."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118


def _read(path: str) -> bytes:
    """Read a script; on failure, exit as python does."""
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
