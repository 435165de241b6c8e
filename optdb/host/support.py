"""Which versions Theano works with, and the error for the others.

`problems` compares the installed versions with `REQUIREMENTS`; `check` raises
`UnsupportedHost` for the first problem. Versions are read from the packages' metadata, so
that the check imports no package that might fail.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from optdb.host.compat.versions import PYTHON_WITHOUT_DISTUTILS

#: Installs Theano where pip alone cannot build it.
INSTALL_THEANO = "python -m optdb install-theano"


class UnsupportedHost(ImportError):
    """Theano cannot work here. The message names what was found and the cure."""


class HostNotInstalled(UnsupportedHost, ModuleNotFoundError):
    """Theano, or a package that it needs, is not installed."""


@dataclass(frozen=True)
class Requirement:
    """A range of versions that works.

    Parameters
    ----------
    name : str
        As users write it.
    lowest, below : str
        The first version that works, and the first one after it that does not.
    """

    name: str
    lowest: str
    below: str

    @property
    def range(self) -> str:
        """The range as pip writes it."""
        return f">={self.lowest},<{self.below}"

    @property
    def cure(self) -> str:
        """What the user can do, in one line."""
        if self.name == "Python":
            return "make a virtual environment with Python 3.10 to 3.14"
        if self.name == "Theano" and sys.version_info >= PYTHON_WITHOUT_DISTUTILS:
            return INSTALL_THEANO
        return f'pip install "{self.name}{self.range}"'

    def admits(self, version: str) -> bool:
        """Whether a version lies in the range."""
        return _release(self.lowest) <= _release(version) < _release(self.below)


REQUIREMENTS = (
    Requirement("Python", "3.10", "3.15"),
    Requirement("Theano", "1.0.5", "1.0.6"),
    Requirement("numpy", "1.22", "3"),
    Requirement("scipy", "1.8", "2"),
)


def found(name: str) -> str | None:
    """Return the version found here of Python or of a package, or None where there is none."""
    if name == "Python":
        return platform.python_version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def problems() -> Iterator[tuple[Requirement, str | None]]:
    """Yield each requirement that is not met, with the version found."""
    for requirement in REQUIREMENTS:
        version = found(requirement.name)
        if version is None or not requirement.admits(version):
            yield requirement, version


def check() -> None:
    """Do nothing where Theano can work.

    Raises
    ------
    UnsupportedHost
        Where it cannot.
    """
    for requirement, version in problems():
        raise _error(requirement, version)


def _error(requirement: Requirement, version: str | None) -> UnsupportedHost:
    works = ", ".join(f"{r.name} {r.range}" for r in REQUIREMENTS)
    kind = HostNotInstalled if version is None else UnsupportedHost
    here = "is not installed" if version is None else f"{version} is installed"
    if requirement.name == "Python":
        here = f"{version} is running"
    return kind(
        f"Theano cannot work here: {requirement.name} {here}.\nWhat works: {works}.\nThe cure: {requirement.cure}",
        name="theano",
    )


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers a version starts with: (1, 24, 0) for '1.24.0rc1'."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in numbers.group().split(".")) if numbers else ()
