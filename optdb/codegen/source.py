"""Reads templates of OpenCL C from files beside the modules that use them.

A template has placeholders: a type, the load of a float16, the rows of a block. They look like a compiler's macros,
and :func:`filled` substitutes them before anything else reads the code.

A float16 is kept in 16 bits, and computed in 32, so that no device needs to know ``half``: float32 holds every float16
exactly, and a store rounds once. Kernels work in `work_dtype`, and load and store through the functions that
`load_w` and `write_w` name, which the prelude defines. For all other dtypes these names are empty, so that one template
serves all dtypes: ``f"{load_w(dtype)}(x[i])"``.
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

#: Ahead of code in which numbers are rounded after each step, as the host rounds them.
ROUND_EACH_STEP = "#pragma OPENCL FP_CONTRACT OFF\n"

_FUNCTION = re.compile(r"^(?:__attribute__[^\n]*\n)?[A-Za-z_][^\n(]*?(?P<name>\w+)\(.*?^\}\n", re.DOTALL | re.MULTILINE)


@functools.cache
def functions(file: str) -> dict[str, str]:
    """Return the functions in a file of this package, by name: each begins and ends at the beginning of a line."""
    text = importlib.resources.files("optdb.codegen").joinpath(file).read_text(encoding="utf-8")
    return {function["name"]: function[0] for function in _FUNCTION.finditer(text)}


def body(function: str) -> str:
    """Return the statements of a function, to be filled into others, whose variables they use."""
    return function[function.index("{") + 1 : function.rindex("}")]


@functools.lru_cache(maxsize=4096)
def filled(code: str, **words: Any) -> str:
    """Return code with some of its words replaced."""
    return re.sub(rf"\b(?:{'|'.join(words)})\b", lambda word: str(words[word[0]]), code)


def work_dtype(dtype: DTypeLike) -> str:
    """Return the name of the dtype to compute in."""
    return "float32" if _is_half(dtype) else np.dtype(dtype).name


def load_w(dtype: DTypeLike) -> str:
    """Return the function that converts loaded values, empty where none is needed."""
    return "ga_half2float" if _is_half(dtype) else ""


def write_w(dtype: DTypeLike) -> str:
    """Return the function that converts values to be stored, empty where none is needed."""
    return "ga_float2half" if _is_half(dtype) else ""


def _is_half(dtype: DTypeLike) -> bool:
    return np.dtype(dtype) == np.float16


def type_words(dtype: DTypeLike, prefix: str = "") -> dict[str, str]:
    """Return the words of a dtype: T, the stored type, W, the computed one, LOAD and STORE; each after a prefix."""
    words = {"T": ctype(dtype), "W": ctype(work_dtype(dtype)), "LOAD": load_w(dtype), "STORE": write_w(dtype)}
    return {prefix + name: word for name, word in words.items()}


def typed(code: str, dtype: DTypeLike, **words: Any) -> str:
    """Return code for arrays of a dtype, with its words, see `type_words`, and others filled in."""
    return filled(code, **type_words(dtype), **words)


def joined(lines: Iterable[str]) -> str:
    """Return lines of code as one text."""
    return "\n".join(lines)


def add_offsets(index: str, lengths: str, dims: int, offsets: Mapping[str, str], step: str = "ga_ssize") -> str:
    """Return statements that divide an index into those of some axes, the last one first, and add to offsets.

    The variable `index` is used up; `lengths` is the name of the lengths of the axes, without the number of the axis.
    The statements add to each variable of `offsets`, of type `step`, the index of an axis times the named stride.
    """
    lines = []
    for d in reversed(range(dims)):
        along = f"({index} % {lengths}{d})" if d else index
        lines += [f"{offset} += ({step}){along} * {by}{d};" for offset, by in offsets.items()]
        lines += [f"{index} /= {lengths}{d};"] * (d > 0)
    return joined(lines)


def row_offsets(
    lengths: str,
    dims: int,
    offsets: Mapping[str, tuple[str, str]],
    size: str = "ga_size",
    step: str = "ga_ssize",
) -> str:
    """Return statements that locate element `i`: its column, along the last axis, and its index in each array.

    Lengths and steps are named without the number of the axis; for each offset, the mapping has its start and its
    steps. Indexes have the type `size`, and offsets the type `step`.
    """
    last = dims - 1
    lines = [f"const {size} column = {f'i % {lengths}{last}' if last else 'i'};"]
    lines += [f"{step} {offset} = {begin} + ({step})column * {by}{last};" for offset, (begin, by) in offsets.items()]
    if last:
        lines.append(f"{size} row = i / {lengths}{last};")
        lines.append(add_offsets("row", lengths, last, {offset: by for offset, (_, by) in offsets.items()}, step))
    return joined(lines)
