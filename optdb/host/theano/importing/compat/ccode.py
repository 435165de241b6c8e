"""Makes Theano's C code, including Scan's, compile with current Python and NumPy versions.

The compiler includes ``include/theano_compat.h`` before the source. The header is named without its folder, which is on
the include path. The keys of modules therefore contain a digest of optdb's headers, but no path.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optdb.host.theano.importing.compat import versions

INCLUDE_DIR = Path(__file__).parent / "include"
HEADER = INCLUDE_DIR / "theano_compat.h"
NUMPY_2_DIR = INCLUDE_DIR / "numpy2"


@functools.cache
def compile_args() -> tuple[str, ...]:
    """Return the compiler arguments that include the header; empty if the header is not needed."""
    if not versions.needs_header():
        return ()
    headers = sorted(INCLUDE_DIR.rglob("*.h"))
    digest = hashlib.sha256(b"".join(header.read_bytes() for header in headers)).hexdigest()[:12]
    # Each argument is one word, because Theano sorts arguments and removes duplicates.
    return (f"-include{HEADER.name}", f"-DOPTDB_COMPAT=0x{digest}")


def without_header(args: Iterable[str]) -> list[str]:
    """Return the compiler's arguments without those from `compile_args`."""
    return [arg for arg in args if arg not in compile_args()]


def install(cmodule: Any) -> None:
    """Make the compiler class in ``theano.gof.cmodule`` include the header."""
    if not compile_args():
        return
    compiler = cmodule.GCC_compiler
    theano_args, try_compile = compiler.compile_args, compiler._try_compile_tmp.__func__
    include_dirs = cmodule.std_include_dirs

    @functools.wraps(theano_args)
    def args_with_header(*args: Any, **options: Any) -> list[str]:
        return [*theano_args(*args, **options), *compile_args()]

    def try_without_header(
        cls: Any,
        src_code: str,
        tmp_prefix: str = "",
        flags: Iterable[str] = (),
        try_run: bool = False,
        output: bool = False,
        compiler: str | None = None,
        comp_args: bool = True,
    ) -> Any:
        # Trial programs are compiled without include folders, so the compiler would not find the header.
        args = [*without_header(cls.compile_args()), *flags] if comp_args else flags
        return try_compile(cls, src_code, tmp_prefix, args, try_run, output, compiler, comp_args=False)

    compiler.compile_args = staticmethod(args_with_header)
    compiler._try_compile_tmp = classmethod(try_without_header)
    header_dirs = [INCLUDE_DIR, NUMPY_2_DIR] if versions.needs_promotion() else [INCLUDE_DIR]
    cmodule.std_include_dirs = lambda: [*include_dirs(), *map(str, header_dirs)]


def replace_inc_code(inc_code: Any) -> None:
    """Replace the C code from ``theano.tensor.inc_code`` with code that compiles with NumPy 2."""
    if versions.needs_promotion():
        inc_code.inc_code = (NUMPY_2_DIR / "increment_rows.h").read_text


@contextmanager
def compiling_scan(cmodule: Any) -> Iterator[None]:
    """Make Scan's C code, which was generated for Python 3.7 and NumPy 1, compile within the block."""
    compiler, include_dirs = cmodule.GCC_compiler, cmodule.std_include_dirs
    compile_str = compiler.compile_str

    def compile_adapted(name: str, source: str, *args: Any, **options: Any) -> Any:
        if versions.needs_promotion():
            source = _with_accessors(source)
        try:
            return compile_str(name, source, *args, **options)
        except Exception as error:
            # If this import fails, Scan falls back to its slow loop in Python.
            raise ImportError(f"Scan's C code does not compile here: {error}") from error

    if versions.needs_translation():
        compiler.compile_str = staticmethod(compile_adapted)
    # Do not change config.gcc.cxxflags, which belongs to the user and is part of every op's cache key.
    folder = "py312" if sys.version_info >= (3, 12) else "py311" if sys.version_info >= (3, 11) else None
    if folder:
        cmodule.std_include_dirs = lambda: [*include_dirs(), str(INCLUDE_DIR / folder)]
    try:
        with warnings.catch_warnings():
            # Ignore the warning that this struct is larger in NumPy 2 than declared, because Scan does not use the
            # struct.
            warnings.filterwarnings("ignore", message="numpy.broadcast size changed")
            yield
    finally:
        compiler.compile_str, cmodule.std_include_dirs = staticmethod(compile_str), include_dirs


def _with_accessors(source: str) -> str:
    """Use NumPy's macros to access the dtype fields that NumPy 2 has moved."""
    return re.sub(
        r"\b(__pyx_v_\w+)->(subarray|names|fields)\b",
        lambda match: f"PyDataType_{match[2].upper()}({match[1]})",
        source,
    )
