"""Finds a BLAS that Theano's C code can be linked with.

`ldflags` links and runs a small program with each of `CANDIDATES` and returns the first
one that works. The answer is kept on disk, under a key that changes with all it depends
on, so that a library installed later is found and one removed is forgotten.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from optdb.host.clinker.toolchain import cache_dir, toolchain

__all__ = ["cache_dir", "ldflags", "links"]

CANDIDATES = ("-lopenblas", "-lblas")

#: Longest time for the compiler, or the program, to answer. Both take a tenth of a second.
TIMEOUT_S = 20

# C and C++ alike: config.cxx is a C++ compiler, but a plain name is what BLAS exports.
PROGRAM = """\
extern "C" double ddot_(int*, double*, int*, double*, int*);
int main()
{
    int n = 3, step = 1;
    double x[3] = {1, 2, 3};
    return ddot_(&n, x, &step, x, &step) == 14. ? 0 : 1;
}
"""


def ldflags(compiler: str, version: str, lib_dirs: Iterable[str] = ()) -> str:
    """Return the linker flags of a BLAS that works here, or '' where none does.

    Parameters
    ----------
    compiler : str
        The C++ compiler, by path or by name.
    version : str
        What the compiler says its version is.
    lib_dirs : iterable of str
        Folders that Theano has the linker look in, beside the compiler's own.
    """
    search = [f"-L{folder}" for folder in lib_dirs]
    answer = cache_dir() / f"blas-{_key(compiler, version, search)}.txt"
    if answer.is_file():
        return answer.read_text()

    flags = next((flag for flag in CANDIDATES if links(compiler, [flag, *search])), "")
    _keep(answer, flags)
    return flags


def links(compiler: str, flags: Iterable[str]) -> bool:
    """Whether a program that calls BLAS compiles with these flags, and runs."""
    with tempfile.TemporaryDirectory(prefix="optdb-blas-") as folder:
        source, program = Path(folder, "try.cpp"), Path(folder, "try.out")
        source.write_text(PROGRAM)
        build = [compiler, str(source), "-o", str(program), *flags]
        return _run(build) is not None and _run([str(program)]) is not None


def _key(compiler: str, version: str, search: list[str]) -> str:
    """Return a digest of everything that the answer depends on."""
    parts = [
        PROGRAM,
        compiler,
        version,
        # The cache may lie in a home folder that several machines share.
        platform.node(),
        *search,
        *(os.environ.get(name, "") for name in ("PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH")),
        *map(str, library_stamps(compiler, search)),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def library_stamps(compiler: str, search: list[str]) -> list[object]:
    """Return what changes when one of the libraries that could be linked is installed, replaced or removed."""
    return toolchain(compiler).library_stamps([*CANDIDATES, *search])


def _keep(answer: Path, flags: str) -> None:
    """Write the answer down, in one step, for processes that start at the same time."""
    try:
        answer.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=answer.parent, delete=False) as file:
            file.write(flags)
        Path(file.name).replace(answer)
    except OSError:
        # A read-only home costs a trial link at each start, and nothing else.
        return


def _run(command: list[str]) -> str | None:
    """Run a command; return what it printed, or None where it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
