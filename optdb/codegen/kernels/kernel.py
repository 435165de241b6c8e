"""Kernels, described by their code and by the name, parameters and device features parsed from it.

`ARRAY` is the only construct that is not C: :func:`expand_arrays` replaces it with a pointer to the buffer and an
offset in bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.kernels.params import ARRAY, BUFFER, LOCAL, SIZE, SSIZE, SSIZES, Param, as_param
from optdb.codegen.kernels.prelude import CTYPES
from optdb.numpy_types import AnyDtype
from optdb.runtime.context import Context

_HEAD = re.compile(r"(?P<kind>KERNEL\s+void)\s+(?P<name>\w+)\s*\((?P<params>[^()]*)\)\s*\{")
_ARRAY = re.compile(r"\s*\bARRAY\s+(?P<type>[^*]*?)\s*\*\s*(?P<restrict>restrict\s+)?(?P<name>\w+)\s*")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)[ \t]+(?P<type>\w+)[ \t]*$", re.MULTILINE)
_TYPE = re.compile(r"\bga_\w+")

_NUMBERS: dict[str, Param] = {
    "ga_size": SIZE,
    "ga_ssize": SSIZE,
    "long16": SSIZES,
    **{word: as_param(dtype) for dtype, word in CTYPES.items()},
}
_DTYPES = {word: dtype for dtype, word in CTYPES.items()}


#: Caches results, because similar nodes have the same code.
_remembered = functools.lru_cache(maxsize=4096)


@_remembered
def expand_arrays(code: str) -> str:
    """Return code in which each `ARRAY` of a kernel is expanded to a pointer to the array's first element."""
    if "ARRAY" not in code:
        return code
    return _HEAD.sub(_expanded, code)


def _expanded(head: re.Match[str]) -> str:
    params, starts = [], []
    for param in head["params"].split(","):
        array = _ARRAY.fullmatch(param)
        if array is None:
            params.append(param.strip())
            continue
        kind, name = array["type"], array["name"]
        params.append(f"GLOBAL_MEM {kind} *{array['restrict'] or ''}{name}, ga_size {name}_off")
        starts.append(f"{name} = (GLOBAL_MEM {kind} *)((GLOBAL_MEM char *){name} + {name}_off);")
    return "\n".join([f"{head['kind']} {head['name']}({', '.join(params)}) {{", *starts])


@_remembered
def kernel_names(code: str) -> tuple[str, ...]:
    """Return the names of the kernels that `code` declares."""
    return tuple(head["name"] for head in _HEAD.finditer(code))


@_remembered
def kernel_params(code: str, name: str) -> tuple[Param, ...]:
    """Return the declared parameters of a kernel; a pointer and its offset become one array parameter.

    Raise ValueError if the code does not declare the kernel, or if a launch cannot pass one of its parameters.
    """
    head = next((head for head in _HEAD.finditer(code) if head["name"] == name), None)
    if head is None:
        raise ValueError(f"the code of kernel {name} does not declare it, as KERNEL void {name}(...) {{...}}")
    defines = _DEFINE.finditer(code) if "define" in code else ()  # the search takes most of this function's time
    defined = {define["name"]: define["type"] for define in defines}
    declared = [param.split() for param in head["params"].replace("*", " * ").split(",")]
    names = {words[-1] for words in declared if words}
    offsets = {f"{words[-1]}_off" for words in declared if "*" in words}
    return tuple(_param(words, name, names, defined) for words in declared if not (words and words[-1] in offsets))


def _param(words: list[str], kernel: str, names: set[str], defined: dict[str, str]) -> Param:
    if "*" in words:
        if words[0] == "LOCAL_MEM_ARG":
            return LOCAL
        return ARRAY if f"{words[-1]}_off" in names else BUFFER
    kind = defined.get(words[-2], words[-2]) if len(words) > 1 else None
    if kind not in _NUMBERS:
        raise ValueError(
            f"kernel {kernel} declares {' '.join(words)!r}, which cannot be a parameter of a launch: use ARRAY T *x, "
            "GLOBAL_MEM T *x, LOCAL_MEM_ARG T *x, or a number of a type such as ga_size or ga_float"
        )
    return _NUMBERS[kind]


@_remembered
def dtypes_in(code: str) -> tuple[AnyDtype, ...]:
    """Return the distinct dtypes whose C types occur in `code`."""
    return tuple(np.dtype(_DTYPES[word]) for word in dict.fromkeys(_TYPE.findall(code)) if word in _DTYPES)


#: Maps each flag to the dtype that a device must support.
FLAGS = {"GA_USE_SMALL": "int16", "GA_USE_HALF": "float16", "GA_USE_DOUBLE": "float64", "GA_USE_COMPLEX": "complex64"}

_THEANO_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]cluda\.h[">].*$', re.MULTILINE)


class UnsupportedKernel(RuntimeError):
    """Raised if a device lacks a feature that a kernel needs. The message names both."""


class Kernel:
    """A kernel's code, name, parameters and flags.

    Parameters
    ----------
    code : str
        OpenCL C that may use the prelude (see :mod:`optdb.codegen.kernels.prelude`). The kernels of a node share one
        source, which contains each distinct code once; kernels may use each other's definitions.
    name : str, optional
        Name of the kernel function in the code; optional if the code declares one kernel.
    params : sequence, optional
        Types of the arguments: a dtype for each number, or SIZE, SSIZE, ARRAY (two parameters in the code, a pointer
        and its offset in bytes), BUFFER (a single pointer), or LOCAL. By default, they are read from the code.
    flags : str or iterable of str, optional
        Device features that the kernel needs, see `get_flags`; in one string, they are separated by '|'. The default is
        the features that the dtypes in the code need.
    codevar, binvar, objvar, fname, sname : str, optional
        Names of C variables and functions, as in kernels of Theano's GPU back-end. They are accepted but ignored:
        kernels are launched from Python.

    Raises
    ------
    TypeError
        If name and params are passed in the order of Theano's GPU back-end.
    ValueError
        If an omitted argument cannot be read from the code.
    """

    def __init__(
        self,
        code: str,
        name: str | None = None,
        params: Sequence[Param | DTypeLike] | None = None,
        flags: str | Iterable[str] | None = None,
        *,
        codevar: str | None = None,
        binvar: str | None = None,
        objvar: str | None = None,
        fname: str | None = None,
        sname: str | None = None,
    ) -> None:
        code = expand_arrays(code if "cluda.h" not in code else _THEANO_HEADER.sub("", code))
        name = _only_kernel(code) if name is None else name
        if not isinstance(name, str):
            raise TypeError(
                f"the name of a kernel must be a string, not {name!r}; instead of Kernel(code, params, name, flags), "
                "as in Theano's GPU back-end, write Kernel(code=..., name=..., params=..., flags=...)"
            )
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a kernel: it is not an identifier")
        self.code = code
        self.name = name
        self.params = kernel_params(code, name) if params is None else tuple(as_param(param) for param in params)
        self.flags = self.get_flags(*dtypes_in(code)) if flags is None else _flags(flags, name)

    def __repr__(self) -> str:
        return f"Kernel({self.name}: {', '.join(map(repr, self.params))}: {'|'.join(self.flags)})"

    @classmethod
    def all_of(cls, code: str, flags: str | Iterable[str] | None = None) -> list[Kernel]:
        """Return all kernels that `code` declares."""
        code = expand_arrays(code)
        return [cls(code, name, flags=flags) for name in kernel_names(code)]

    @staticmethod
    def get_flags(*dtypes: DTypeLike) -> tuple[str, ...]:
        """Return the flags of a kernel that uses `dtypes`."""
        return tuple(dict.fromkeys(flag for dtype in dtypes for flag in _flags_of(np.dtype(dtype))))

    def require(self, context: Context) -> None:
        """Raise UnsupportedKernel if a context's device lacks a feature that the kernel needs."""
        for flag in self.flags:
            reason = context.unsupported_reason(FLAGS[flag])
            if reason is not None:
                device = context.profile.name
                raise UnsupportedKernel(f"kernel {self.name} needs {flag}, which {device} does not support: {reason}")


def _only_kernel(code: str) -> str:
    names = kernel_names(code)
    if len(names) != 1:
        raise ValueError(
            f"this code declares {' and '.join(names) or 'no kernel'}, so Kernel(code, name) must name one; a kernel "
            "is declared by KERNEL void name(...) {...}. The code begins with\n"
            f"{code[:200]}"
        )
    return names[0]


def _flags(flags: str | Iterable[str], name: str) -> tuple[str, ...]:
    words = flags.split("|") if isinstance(flags, str) else flags
    requested = tuple(word.strip() for word in words if word.strip())
    for flag in requested:
        if flag not in FLAGS:
            raise ValueError(f"kernel {name} has an unknown flag {flag!r}; the flags are {', '.join(FLAGS)}")
    return requested


def _flags_of(dtype: AnyDtype) -> list[str]:
    needed = {
        "GA_USE_DOUBLE": dtype in (np.float64, np.complex128),
        "GA_USE_COMPLEX": dtype.kind == "c",
        "GA_USE_HALF": dtype == np.float16,
        "GA_USE_SMALL": dtype.itemsize < 4,
    }
    return [flag for flag, is_needed in needed.items() if is_needed]
