"""Kernels, described by their code and parameters, and by what a device must have for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.kernels.params import Param, as_param
from optdb.deprecation import warn_renamed

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: What each flag asks of a device, as the dtype that it has to support.
FLAGS = {
    "GA_USE_SMALL": "int16",
    "GA_USE_HALF": "float16",
    "GA_USE_DOUBLE": "float64",
    "GA_USE_COMPLEX": "complex64",
}

_THEANO_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]cluda\.h[">].*$', re.MULTILINE)


class UnsupportedKernel(RuntimeError):
    """A device lacks what a kernel needs. The message says what, and which kernel."""


class Kernel:
    """A kernel's code, and how it is to be called.

    Parameters
    ----------
    code : str
        OpenCL C, in the words of the prelude (see :mod:`optdb.codegen.kernels.prelude`). Of the kernels of a node,
        equal codes are taken once, and all may use what the others define.
    name : str
        The kernel function's name in the code.
    params : sequence
        What it is launched with: a dtype for each number, or SIZE, SSIZE, ARRAY (two parameters in the code, a
        pointer and its offset in bytes), BUFFER (a pointer alone), or LOCAL.
    flags : str or iterable of str
        What the device must have, see `get_flags`; in one string, they are separated by '|'.
    codevar, binvar, objvar, fname, sname : str, optional
        Names of C variables and functions, which kernels of Theano's GPU back-end are given. They are accepted, and
        not used: kernels are launched from Python.

    Raises
    ------
    TypeError
        If name and params are in the order that Theano's GPU back-end has.
    """

    def __init__(
        self,
        code: str,
        name: str,
        params: Sequence[Param | DTypeLike],
        flags: str | Iterable[str] = (),
        *,
        codevar: str | None = None,
        binvar: str | None = None,
        objvar: str | None = None,
        fname: str | None = None,
        sname: str | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"the name of a kernel is a text, not {name!r}; where Theano's GPU back-end has Kernel(code, params, "
                "name, flags), write Kernel(code=..., name=..., params=..., flags=...)"
            )
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a kernel: it is no identifier")
        if "CHUNK_KERNEL" in code:
            warn_renamed("CHUNK_KERNEL", "OUTLINED_KERNEL")
            code = code.replace("CHUNK_KERNEL", "OUTLINED_KERNEL")
        self.code = code if "cluda.h" not in code else _THEANO_HEADER.sub("", code)
        self.name = name
        self.params = tuple(as_param(param) for param in params)
        self.flags = _flags(flags, name)

    def __repr__(self) -> str:
        return f"Kernel({self.name}: {', '.join(map(repr, self.params))}: {'|'.join(self.flags)})"

    @staticmethod
    def get_flags(*dtypes: DTypeLike) -> tuple[str, ...]:
        """Return the flags of a kernel that works with these dtypes."""
        return tuple(dict.fromkeys(flag for dtype in dtypes for flag in _flags_of(np.dtype(dtype))))

    def require(self, context: Context) -> None:
        """Do nothing if a context's device has what the kernel needs.

        Raises
        ------
        UnsupportedKernel
            If not.
        """
        for flag in self.flags:
            reason = context.unsupported_reason(FLAGS[flag])
            if reason is not None:
                device = context.profile.name
                raise UnsupportedKernel(f"kernel {self.name} needs {flag}, which {device} cannot give: {reason}")


def _flags(flags: str | Iterable[str], name: str) -> tuple[str, ...]:
    words = flags.split("|") if isinstance(flags, str) else flags
    given = tuple(word.strip() for word in words if word.strip())
    for flag in given:
        if flag not in FLAGS:
            raise ValueError(f"kernel {name} has an unknown flag {flag!r}: there are {', '.join(FLAGS)}")
    return given


def _flags_of(dtype: np.dtype) -> list[str]:
    flags = []
    if dtype in (np.float64, np.complex128):
        flags.append("GA_USE_DOUBLE")
    if dtype.kind == "c":
        flags.append("GA_USE_COMPLEX")
    if dtype == np.float16:
        flags.append("GA_USE_HALF")
    if dtype.itemsize < 4:
        flags.append("GA_USE_SMALL")
    return flags
