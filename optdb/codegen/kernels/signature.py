"""Parses a kernel's code: name, parameters and dtypes, as in ``KERNEL void scale(ga_size n, ARRAY ga_float *x) {...}``.

Only `ARRAY` is not C: :func:`expand_arrays` declares a pointer to the buffer and an offset in bytes, and adds them.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from optdb.codegen.kernels.params import ARRAY, BUFFER, LOCAL, SIZE, SSIZE, SSIZES, Param, as_param
from optdb.codegen.kernels.prelude import CTYPES
from optdb.numpy_types import AnyDtype

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


#: Caches results by code: similar nodes have equal codes.
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
    """Return the declared parameters of a kernel; a pointer and its offset count as one (an array).

    Raise ValueError if there is no such kernel, or a launch cannot pass one of its parameters.
    """
    head = next((head for head in _HEAD.finditer(code) if head["name"] == name), None)
    if head is None:
        raise ValueError(f"the code of kernel {name} does not declare it, as KERNEL void {name}(...) {{...}}")
    defines = _DEFINE.finditer(code) if "define" in code else ()  # the search dominates this function's time
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
