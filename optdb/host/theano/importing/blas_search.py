"""Finds a BLAS that Theano's C code can be linked with: links and runs a small program with each of `CANDIDATES`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from optdb.host.theano.clinker.toolchain import Toolchain
from optdb.user_cache import cache_dir

CANDIDATES = ("-lopenblas", "-lblas")

#: Each normally takes a tenth of a second.
TIMEOUT_S = 20

# The program is valid C and C++: config.cxx is a C++ compiler, but BLAS exports unmangled names.
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
    """Return the linker flags of a BLAS that works here, or '' for none; `lib_dirs` are searched for libraries."""
    search = [f"-L{folder}" for folder in lib_dirs]
    toolchain = Toolchain(compiler, cache_dir())
    question = ["blas", PROGRAM, compiler, version, *search, *toolchain.library_stamps([*CANDIDATES, *search])]
    return toolchain.answer(question, lambda: _first_that_links(compiler, search))


def _first_that_links(compiler: str, search: list[str]) -> str:
    return next((flag for flag in CANDIDATES if links(compiler, [flag, *search])), "")


def links(compiler: str, flags: Iterable[str]) -> bool:
    """Return whether a program that calls BLAS compiles with these flags, and runs."""
    try:
        with tempfile.TemporaryDirectory(prefix="optdb-blas-") as folder:
            source, program = Path(folder, "try.cpp"), Path(folder, "try.out")
            source.write_text(PROGRAM)
            build = [compiler, str(source), "-o", str(program), *flags]
            return _run(build) is not None and _run([str(program)]) is not None
    except OSError:  # no room for the program: `Toolchain` warns, and does not cache the answer
        return False


def _run(command: list[str]) -> str | None:
    """Run a command; return its output, or None if it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
