"""Runs Python in separate processes, for tests of imports, for example."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from optdb.host.theano.clinker.extensions import EXTENSIONS, is_built

ROOT = Path(__file__).resolve().parent.parent


def python_path(*folders: object) -> str:
    """Return a PYTHONPATH with some folders, this checkout and the current entries, in this order."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, [*map(str, folders), str(ROOT), inherited]))


def with_extensions(folder: Path, names: Iterable[str] = EXTENSIONS.values()) -> Path:
    """Copy Theano's own compiled extensions to a new base_compiledir, because compiling them takes many seconds.

    Parameters
    ----------
    folder : Path
        The base_compiledir, for processes with this process's Python.
    names : iterable of str
        The extensions to copy.

    Returns
    -------
    Path
        The folder.
    """
    from theano import config

    shared = Path(config.compiledir)
    for name in names:
        if is_built(shared, name):
            shutil.copytree(shared / name, folder / shared.name / name, dirs_exist_ok=True)
    return folder


def python(
    *args: str,
    flags: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    optimized: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run Python with the given arguments.

    Parameters
    ----------
    *args : str
        The arguments after ``python``.
    flags : str
        THEANO_FLAGS to add to the current ones.
    env : mapping of str to str, optional
        Environment variables to add.
    cwd : Path, optional
        The folder to run in.
    optimized : bool
        Whether the driver optimizes kernels, as it does for users.
    """
    inherited = os.environ.get("THEANO_FLAGS", "")
    everything = {
        **os.environ,
        "THEANO_FLAGS": ",".join(filter(None, [inherited, flags])),
        # The settings in a user's .theanorc must not influence the tests.
        "THEANORC": os.devnull,
        "PYTHONPATH": python_path(),
        **(env or {}),
    }
    if optimized:
        for variable in ("POCL_EXTRA_BUILD_FLAGS", "OCLGRIND_BUILD_OPTIONS", "COMPILER_PATH"):
            everything.pop(variable, None)
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=everything, cwd=cwd)


#: Matches what Theano prints when it is imported without a C++ compiler.
_WITHOUT_COMPILER = re.compile(
    r"^.*UserWarning: DeprecationWarning: there is no c\+\+ compiler.*\n  warnings\.warn\(.*\n"
    r"|^WARNING \(theano\.\S+\): (?:g\+\+ not|Using NumPy C-API based implementation for BLAS).*\n",
    re.MULTILINE,
)


def run_code(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run some lines of Python, which may be indented; the options are those of `python`."""
    return python("-c", textwrap.dedent(code), **options)


def output(code: str, **options: object) -> str:
    """Run some lines of Python that must succeed without warnings; return their output.

    If there is no C++ compiler, Theano's warning about it is allowed.
    """
    done = run_code(code, **options)
    assert done.returncode == 0, done.stderr
    assert (done.stderr if _has_compiler() else _WITHOUT_COMPILER.sub("", done.stderr)) == ""
    return done.stdout.strip()


def _has_compiler() -> bool:
    """Tell whether processes have a C++ compiler; the current flags may disable it."""
    return shutil.which("g++") is not None and "cxx=" not in os.environ.get("THEANO_FLAGS", "").split(",")
