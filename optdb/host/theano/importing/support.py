"""Theano's requirements (versions, a compiler, a folder for compiled code), and the errors raised if they are not met.

Versions are read from the packages' metadata, because an import may fail.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from optdb.host.theano.importing.compat.versions import PYTHON_WITHOUT_DISTUTILS, version_text

INSTALL_THEANO = "python -m optdb install-theano"


class UnsupportedHost(ImportError):
    """Raised if Theano cannot work here. The message names the fault and the fix."""


class HostNotInstalled(UnsupportedHost, ModuleNotFoundError):
    """Raised if Theano, or a package that it needs, is not installed."""


class _Unusable(RuntimeError):
    """Base class of errors about a compiler or folder that Theano needs and cannot use.

    In `cure`, lines that begin with four spaces are commands to copy.
    """

    finding: str
    cure: str

    def __str__(self) -> str:
        # Do not use `args`: if a node's compilation fails, Theano adds the node to the error's `args`.
        return f"{self.finding}\nThe cure: {self.cure}"


class UnusableCompiledir(_Unusable):
    """Raised if Theano's folder for compiled code cannot be used; the message names the folder and the fix."""

    cure = (
        "free some space there, or name a folder that can be written:\n    export THEANO_FLAGS=base_compiledir=FOLDER"
    )

    def __init__(self, finding: str) -> None:
        super().__init__(finding)
        self.finding = finding


class UnusableCompiler(_Unusable):
    """Raised if Theano's C++ compiler is missing or does not compile correct code; the message names the fix."""

    def __init__(self, finding: str, cure: str) -> None:
        super().__init__(finding, cure)
        self.finding = finding
        self.cure = cure


_NO_COMPILER = "or do without a compiler:\n    export THEANO_FLAGS=cxx="
_ANOTHER_COMPILER = f"name another one,\n    export THEANO_FLAGS=cxx=clang++\n{_NO_COMPILER}"
#: The start of Theano's error message when the compiler fails; the compiler's output follows.
_FAILED = re.compile(r"Compilation failed \(return status=-?\d+\): ")
_REFUSED = re.compile(r"(?:unrecogni[sz]ed|unknown|unsupported)[\w -]*(?:option|argument)\W*(-[\w=.+-]+)")


def check_compiler(compiler: str) -> None:
    """Raise UnusableCompiler if a compiler does not start."""
    try:
        subprocess.run([compiler, "-dumpversion"], capture_output=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise _cannot_start(compiler, error) from error


def _cannot_start(compiler: str, error: OSError) -> UnusableCompiler:
    return UnusableCompiler(
        f"cxx={compiler}: the compiler cannot be started ({error.strerror})",
        "install it (on Debian, with the first line), name another one,\n"
        "    apt-get install g++\n"
        "    export THEANO_FLAGS=cxx=clang++\n"
        f"{_NO_COMPILER}",
    )


@contextmanager
def naming_compiler(compiler: str) -> Iterator[None]:
    """Add the compiler's name and the fix to an error from the block if the compiler fails regardless of the code."""
    try:
        yield
    except Exception as error:
        known = _known_cause(error, compiler)
        if known is None:
            raise
        raise known from error


def compiler_error(error: Exception, compiler: str) -> UnusableCompiler | None:
    """Return an error that names the fault in the compiler; None if the compiler did not cause Theano's `error`."""
    complaint = _complaint(error)
    if complaint is None:
        return None
    return _known_cause(error, compiler) or UnusableCompiler(_does_not_compile(compiler, complaint), _ANOTHER_COMPILER)


def _known_cause(error: Exception, compiler: str) -> UnusableCompiler | None:
    """Return the error to raise instead of `error` if the compiler fails regardless of the code; None otherwise."""
    if isinstance(error, OSError) and error.filename == compiler:
        return _cannot_start(compiler, error)
    complaint = _complaint(error)
    if complaint is None:
        return None
    finding = _does_not_compile(compiler, complaint)
    if "Python.h" in complaint:
        headers = f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-dev"
        return UnusableCompiler(finding, f"install Python's headers. On Debian:\n    {headers}\n{_NO_COMPILER}")
    refused = _REFUSED.search(complaint)
    if refused is not None:
        return UnusableCompiler(finding, f"remove {refused[1]} from Theano's flag gcc.cxxflags,\n{_NO_COMPILER}")
    return None


def _does_not_compile(compiler: str, complaint: str) -> str:
    return f"cxx={compiler}: the compiler cannot compile Theano's code: {complaint}"


def _complaint(error: Exception) -> str | None:
    """Return the compiler's first message in Theano's error, which replaces line breaks by dots; None without one."""
    failed = _FAILED.search(str(error)) if type(error) is Exception else None
    if failed is None:
        return None
    output = str(error)[failed.end() :]
    first = re.search(r"error: .*?(?=\.\s|$)", output)
    return first[0] if first is not None else output.strip() or "it prints no message"


_UNUSABLE = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM])
_TEMPORARY_FILE = re.compile(r"(\S*)/cc\w{6}\.\w+: ")


@contextmanager
def writing_compiledir(compiledir: str | os.PathLike[str]) -> Iterator[None]:
    """Add the folder's name and the fix to an error from the block if the folder is full or read-only."""
    try:
        yield
    except Exception as error:
        reason = _why_unwritable(error)
        if reason is None:
            raise
        temporary = _TEMPORARY_FILE.search(str(error))
        if temporary is not None:
            raise UnusableCompiler(
                f"the compiler's temporary files cannot be written: {reason}: {temporary[1]}",
                "free some space there, or name a folder with space:\n    export TMPDIR=FOLDER",
            ) from error
        raise UnusableCompiledir(f"Theano's folder for compiled code cannot be used: {reason}: {compiledir}") from error


def _why_unwritable(error: Exception) -> str | None:
    full = os.strerror(errno.ENOSPC)
    if isinstance(error, OSError) and error.errno in _UNUSABLE:
        return os.strerror(error.errno)
    return full if full in str(error) else None


@dataclass(frozen=True)
class Requirement:
    """A range of supported versions: at least `lowest`, and below `below`."""

    name: str
    lowest: str
    below: str

    @property
    def range(self) -> str:
        """The range in pip's syntax."""
        return f">={self.lowest},<{self.below}"

    @property
    def cure(self) -> str:
        """The fix for the user, in one line."""
        if self.name == "Python":
            return "make a virtual environment with Python 3.10 to 3.14"
        if self.name == "Theano" and sys.version_info >= PYTHON_WITHOUT_DISTUTILS:
            return INSTALL_THEANO
        return f'pip install "{self.name}{self.range}"'

    def admits(self, version: str) -> bool:
        """Return whether a version is in the range."""
        return _release(self.lowest) <= _release(version) < _release(self.below)


REQUIREMENTS = (
    Requirement("Python", "3.10", "3.15"),
    Requirement("Theano", "1.0.5", "1.0.6"),
    Requirement("numpy", "1.22", "3"),
    Requirement("scipy", "1.8", "2"),
)


def found(name: str) -> str | None:
    """Return the installed version of Python or of a package; None if there is none."""
    if name == "Python":
        return platform.python_version()
    return version_text(name)


def problems() -> Iterator[tuple[Requirement, str | None]]:
    """Yield each unmet requirement with the installed version."""
    for requirement in REQUIREMENTS:
        version = found(requirement.name)
        if version is None or not requirement.admits(version):
            yield requirement, version


def check() -> None:
    """Raise UnsupportedHost if a requirement is not met; the error names the first such requirement."""
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
    """Return the leading numbers of a version: (1, 24, 0) for '1.24.0rc1'."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in numbers.group().split(".")) if numbers else ()
