"""Templates for OpenCL C, in files next to the modules that use them; :func:`filled` substitutes placeholders.

A float16 is stored in 16 bits and computed in 32, so that no device has to support ``half``. Kernels compute in
`work_dtype`, and load and store with functions whose names `load_w` and `write_w` return; these names are empty for all
dtypes except float16, so that one template serves all dtypes: ``f"{load_w(dtype)}(x[i])"``.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.kernels import ctype

#: Prefix of code that rounds after each operation, as the host does, instead of contracting to FMA.
ROUND_EACH_STEP = "#pragma OPENCL FP_CONTRACT OFF\n"

_FUNCTION = re.compile(r"^(?:__attribute__[^\n]*\n)?[A-Za-z_][^\n(]*?(?P<name>\w+)\(.*?^\}\n", re.DOTALL | re.MULTILINE)


@functools.cache
def text_of(file: str) -> str:
    """Return the text of a file of this package."""
    return importlib.resources.files("optdb.codegen").joinpath(file).read_text(encoding="utf-8")


def functions(file: str) -> dict[str, str]:
    """Return the functions in a file of this package, by name."""
    return functions_in(text_of(file))


@functools.cache
def functions_in(text: str) -> dict[str, str]:
    """Return the functions in a text, by name. The first and the last line of each function are not indented."""
    return {function["name"]: function[0] for function in _FUNCTION.finditer(text)}


def body(function: str) -> str:
    """Return a function's statements, to inline into functions that declare the variables that the statements use."""
    return function[function.index("{") + 1 : function.rindex("}")]


@functools.lru_cache(maxsize=4096)
def filled(code: str, **words: Any) -> str:
    """Return code with the given placeholders substituted."""
    return re.sub(rf"\b(?:{'|'.join(words)})\b", lambda word: str(words[word[0]]), code)


def work_dtype(dtype: DTypeLike) -> str:
    """Return the name of the dtype that kernels compute in for arrays of `dtype`."""
    return "float32" if _is_half(dtype) else np.dtype(dtype).name


def load_w(dtype: DTypeLike) -> str:
    """Return the name of the function that converts loaded values; empty if none is needed."""
    return "ga_half2float" if _is_half(dtype) else ""


def write_w(dtype: DTypeLike) -> str:
    """Return the name of the function that converts values to be stored; empty if none is needed."""
    return "ga_float2half" if _is_half(dtype) else ""


def _is_half(dtype: DTypeLike) -> bool:
    return np.dtype(dtype) == np.float16


def type_words(dtype: DTypeLike, prefix: str = "") -> dict[str, str]:
    """Return the placeholders T (stored type), W (computed type), LOAD and STORE of a dtype, with a prefix."""
    words = {"T": ctype(dtype), "W": ctype(work_dtype(dtype)), "LOAD": load_w(dtype), "STORE": write_w(dtype)}
    return {prefix + name: word for name, word in words.items()}


def typed(code: str, dtype: DTypeLike, **words: Any) -> str:
    """Return code for arrays of a dtype, by substituting the dtype's placeholders (`type_words`) and `words`."""
    return filled(code, **type_words(dtype), **words)


def joined(lines: Iterable[str]) -> str:
    """Return lines of code as one string."""
    return "\n".join(lines)


def add_offsets(index: str, lengths: str, dims: int, offsets: Mapping[str, str], step: str = "ga_ssize") -> str:
    """Return statements that unravel an index, from the last axis to the first, and increase offsets accordingly.

    `lengths` is the name of the axes' lengths in the code, without the number of the axis. Each variable in `offsets`,
    of type `step`, is increased by the index along each axis times the named stride; `index` is overwritten.
    """
    lines = []
    for d in reversed(range(dims)):
        along = f"({index} % {lengths}{d})" if d else index
        lines += [f"{offset} += ({step}){along} * {by}{d};" for offset, by in offsets.items()]
        lines += [f"{index} /= {lengths}{d};"] * (d > 0)
    return joined(lines)


def row_offsets(
    lengths: str, dims: int, offsets: Mapping[str, tuple[str, str]], size: str = "ga_size", step: str = "ga_ssize"
) -> str:
    """Return statements that compute element i's column (its index along the last axis) and its offset in each array.

    `offsets` maps each offset to the names of its start and its strides. All names are without the number of the axis.
    """
    last = dims - 1
    lines = [f"const {size} column = {f'i % {lengths}{last}' if last else 'i'};"]
    lines += [f"{step} {offset} = {begin} + ({step})column * {by}{last};" for offset, (begin, by) in offsets.items()]
    if last:
        lines.append(f"{size} row = i / {lengths}{last};")
        lines.append(add_offsets("row", lengths, last, {offset: by for offset, (_, by) in offsets.items()}, step))
    return joined(lines)
