"""Finds a BLAS for Theano's C code, and completes Theano's NumPy-based fallback.

The fallback lacks some functions, and a module that calls one of them cannot be loaded. The fallback needs the GIL, so
ops that call BLAS in several threads use one thread.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

#: C functions, in which {T} stands for float or double, and {p} stands for s or d.
FUNCTIONS = """
static inline void {p}gemm_(
    char* trans_a, char* trans_b, const int* m, const int* n, const int* k, const {T}* alpha, const {T}* a,
    const int* lda, const {T}* b, const int* ldb, const {T}* beta, {T}* c, const int* ldc)
{{
    {p}gemm_(trans_a, trans_b, m, n, k, alpha, const_cast<{T}*>(a), lda, const_cast<{T}*>(b), ldb, beta, c, ldc);
}}

static inline void {p}gemv_(
    char* trans, const int* m, const int* n, const {T}* alpha, const {T}* a, const int* lda, const {T}* x,
    const int* incx, const {T}* beta, {T}* y, const int* incy)
{{
    {p}gemv_(trans, m, n, alpha, const_cast<{T}*>(a), lda, const_cast<{T}*>(x), incx, beta, y, incy);
}}

static inline {T} {p}dot_(const int* n, const {T}* x, const int* incx, const {T}* y, const int* incy)
{{
    // NumPy has no matrix with a stride of 0.
    return *n > 0 ? {p}dot_(n, const_cast<{T}*>(x), incx, const_cast<{T}*>(y), incy) : 0;
}}

static inline void {p}axpy_(const int* n, const {T}* alpha, const {T}* x, const int* incx, {T}* y, const int* incy)
{{
    // With a negative increment, the first element is the last one in memory.
    if (*incx < 0)
        x -= (npy_intp)(*n - 1) * *incx;
    if (*incy < 0)
        y -= (npy_intp)(*n - 1) * *incy;
    for (npy_intp i = 0; i < *n; ++i)
        y[i * *incy] += *alpha * x[i * *incx];
}}

static inline void {p}ger_(
    const int* m, const int* n, const {T}* alpha, const {T}* x, const int* incx, const {T}* y, const int* incy, {T}* a,
    const int* lda)
{{
    const int one = 1;
    if (*incy < 0)
        y -= (npy_intp)(*n - 1) * *incy;
    for (npy_intp j = 0; j < *n; ++j) {{
        const {T} factor = *alpha * y[j * *incy];
        {p}axpy_(m, &factor, x, incx, a + j * *lda, &one);
    }}
}}
"""

_DECLARATION = re.compile(r"^\s*(?:void|float|double)\s+[sd](?:gemm|gemv|dot|axpy|ger)_\s*\([^;{]*\);", re.MULTILINE)

#: A part of the cache version of each op that calls BLAS. Change it whenever `FUNCTIONS` changes.
VERSION = 1


def install(blas_headers: ModuleType) -> None:
    """Without a BLAS, make ``theano.tensor.blas_headers`` define all functions that ops call."""
    from theano.configdefaults import config

    header_text, header_version = blas_headers.blas_header_text, blas_headers.blas_header_version

    @functools.wraps(header_text)
    def complete_text() -> str:
        return header_text() if config.blas.ldflags else complete(header_text())

    @functools.wraps(header_version)
    def complete_version() -> tuple[object, ...]:
        return header_version() if config.blas.ldflags else (*header_version(), "optdb", VERSION)

    vars(blas_headers).update(blas_header_text=complete_text, blas_header_version=complete_version)


def stay_in_one_thread(op_class: Any) -> None:
    """Without a BLAS, make the ops of a class run without OpenMP, because the fallback needs the GIL."""
    from theano.configdefaults import config

    update = op_class.update_self_openmp

    @functools.wraps(update)
    def update_openmp(self: Any) -> None:
        if not config.blas.ldflags:
            self.openmp = False
        update(self)

    op_class.update_self_openmp = update_openmp


def complete(header: str) -> str:
    """Return Theano's header and fallback, in which definitions from `FUNCTIONS` replace the declarations."""
    functions = [FUNCTIONS.format(p=letter, T=number) for letter, number in (("s", "float"), ("d", "double"))]
    return "".join([_DECLARATION.sub("", header), *functions])


CANDIDATES = ("-lopenblas", "-lblas")

#: The timeout in seconds for a trial program, which normally takes a tenth of a second.
TIMEOUT_S = 20

# C++, because config.cxx is a C++ compiler; `extern "C"` declares the unmangled name that BLAS exports.
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
    """Return the linker flags of a BLAS that works here, or '' if there is none; search `lib_dirs` for libraries."""
    from optdb.host.theano.clinker.toolchain import Toolchain
    from optdb.user_cache import cache_dir

    search = [f"-L{folder}" for folder in lib_dirs]
    toolchain = Toolchain(compiler, cache_dir())
    question = ["blas", PROGRAM, compiler, version, *search, *toolchain.library_stamps([*CANDIDATES, *search])]
    return toolchain.answer(question, lambda: _first_that_links(compiler, search))


def _first_that_links(compiler: str, search: list[str]) -> str:
    return next((flag for flag in CANDIDATES if links(compiler, [flag, *search])), "")


def links(compiler: str, flags: Iterable[str]) -> bool:
    """Return whether a program that calls BLAS compiles with the given flags and runs."""
    try:
        with tempfile.TemporaryDirectory(prefix="optdb-blas-") as folder:
            source, program = Path(folder, "try.cpp"), Path(folder, "try.out")
            source.write_text(PROGRAM)
            build = [compiler, str(source), "-o", str(program), *flags]
            return _run(build) is not None and _run([str(program)]) is not None
    except OSError:  # no disk space for the program: `Toolchain` warns, and does not cache the result
        return False


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
