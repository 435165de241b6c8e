"""Replaces private paths in a text that users publish, such as the file of ``python -m optdb doctor --report``.

Folders of the system are kept. All others get names: ``~``, ``$PWD``, ``$VENV``, and outside of these ``$FOLDER1``,
``$FOLDER2`` and so on.
"""

from __future__ import annotations

import functools
import getpass
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

__all__ = ["LEGEND", "without_private"]

#: What the names of folders mean.
LEGEND = (
    "~ is the home folder, $PWD the current one, $VENV that of Python's environment, $FOLDER1 ... others, and USER the "
    "user's name"
)
#: Folders of the system, of drivers and of temporary files, which name neither a user nor a project.
SYSTEM = (
    *("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr"),
    *("/opt/amdgpu", "/opt/homebrew", "/opt/intel", "/opt/local", "/opt/nvidia", "/opt/rocm"),
    *("/var/cache", "/var/folders", "/var/lib", "/var/tmp", "/Applications", "/Library", "/System", "/private/var"),
)
#: A path begins after a space or a punctuation mark, or after a compiler's option such as -L.
_BEGIN = r"(?:(?<=-[ILB])|(?<![\w./~$-]))"
#: A path without spaces. In a sentence, a dot may follow it.
_PATH = re.compile(rf"{_BEGIN}/[\w+@~-][\w.+@~-]*(?:/[\w.+@~-]+)*(?<!\.)")
#: A setting such as ``THEANO_FLAGS=base_compiledir=FOLDER,cxx=FILE``.
_SETTING = re.compile(r"[\w.]+=(.*)")


def without_private(text: str) -> str:
    """Replace the folders of a user and of projects by names, and the user's name in other paths by ``USER``."""
    names = dict(_known())
    for path in sorted(set(_paths(text))):  # a folder before what is in it
        if not any(_is_within(path, folder) for folder in (*SYSTEM, *names)):
            names[path] = f"$FOLDER{sum(name.startswith('$FOLDER') for name in names.values()) + 1}"
    for folder in sorted(names, key=len, reverse=True):
        # As a template, a name may not have backslashes of its own.
        name = names[folder].replace("\\", r"\\")
        text = re.sub(rf"{_BEGIN}{re.escape(folder)}(?![\w-]|\.\w)", name, text)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return text
    return re.sub(rf"(?<=/){re.escape(user)}(?=/|\W|$)", "USER", text)


def _known() -> Iterator[tuple[str, str]]:
    """Yield the paths of folders that have names of their own, and these names."""
    for name, paths in {
        "$PWD": (Path.cwd(), os.environ.get("PWD")),
        "$VENV": (sys.prefix, os.path.realpath(sys.prefix)),
        "~": (Path.home(), os.path.realpath(Path.home())),
    }.items():
        for path in filter(None, paths):
            if str(path) != "/" and str(path) not in SYSTEM:
                yield str(path), name


def _paths(text: str) -> Iterator[str]:
    """Yield the absolute paths in a text; those with spaces only from settings, and from lines that consist of one."""
    for line in text.splitlines():
        setting = _SETTING.fullmatch(line)
        pieces = re.split("[,:=]", setting[1]) if setting else [line.strip()] if line.startswith("    /") else []
        whole = [piece for piece in pieces if re.match("/[^/]", piece)]
        yield from whole
        yield from _PATH.findall(functools.reduce(lambda rest, path: rest.replace(path, ""), whole, line))


def _is_within(path: str, folder: str) -> bool:
    return PurePath(path).is_relative_to(folder)
