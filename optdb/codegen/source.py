"""OpenCL C that stands in files of its own, beside the modules that use it.

In such a file some words are left open: a type, the load of a float16, how many rows a block has. They look like a
compiler's macros, and :func:`filled` puts in what stands for them, before the code is looked at any further.

A float16 is kept in 16 bits, and computed in 32, so that no device needs to know ``half``: float32 holds every float16
exactly, and what is stored is rounded once. Kernels work in `work_dtype`, and load and store through the functions that
`load_w` and `write_w` name, which are in the prelude. For all other dtypes these names are empty, so that one template
does for all of them: ``f"{load_w(dtype)}(x[i])"``.
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


@functools.lru_cache(maxsize=4096)
def filled(code: str, **words: Any) -> str:
    """Return code with something else for some of its words."""
    return re.sub(rf"\b(?:{'|'.join(words)})\b", lambda word: str(words[word[0]]), code)


def work_dtype(dtype: DTypeLike) -> str:
    """Return the name of the dtype to compute in."""
    return "float32" if _is_half(dtype) else np.dtype(dtype).name


def load_w(dtype: DTypeLike) -> str:
    """Return the function to put around what is read, empty where none is needed."""
    return "ga_half2float" if _is_half(dtype) else ""


def write_w(dtype: DTypeLike) -> str:
    """Return the function to put around what is stored, empty where none is needed."""
    return "ga_float2half" if _is_half(dtype) else ""


def _is_half(dtype: DTypeLike) -> bool:
    return np.dtype(dtype) == np.float16


def type_words(dtype: DTypeLike, prefix: str = "") -> dict[str, str]:
    """Return the words of a dtype: T, as it is stored, W, computed in, LOAD and STORE between; each behind a prefix."""
    words = {"T": ctype(dtype), "W": ctype(work_dtype(dtype)), "LOAD": load_w(dtype), "STORE": write_w(dtype)}
    return {prefix + name: word for name, word in words.items()}


def typed(code: str, dtype: DTypeLike, **words: Any) -> str:
    """Return code for arrays of a dtype, with its words, see `type_words`, and others filled in."""
    return filled(code, **type_words(dtype), **words)


def joined(lines: Iterable[str]) -> str:
    """Return lines of code as one text."""
    return "\n".join(lines)


def add_places(index: str, lengths: str, dims: int, places: Mapping[str, str], step: str = "ga_ssize") -> str:
    """Return statements that take an index apart into those of some axes, the last one first, and add to places.

    The variable `index` is used up; `lengths` is what the lengths of the axes are called, without the axis behind. To
    each variable of `places`, which have the type `step`, the index of an axis is added times what is called so.
    """
    lines = []
    for d in reversed(range(dims)):
        along = f"({index} % {lengths}{d})" if d else index
        lines += [f"{place} += ({step}){along} * {by}{d};" for place, by in places.items()]
        lines += [f"{index} /= {lengths}{d};"] * (d > 0)
    return joined(lines)


def row_places(
    lengths: str,
    dims: int,
    places: Mapping[str, tuple[str, str]],
    size: str = "ga_size",
    step: str = "ga_ssize",
) -> str:
    """Return statements that tell where element `i` is: its column, along the last axis, and a place in each array.

    Lengths and steps are named without the axis behind; of each place, the mapping says where it begins, and its steps.
    Indexes have the type `size`, and places the type `step`.
    """
    last = dims - 1
    lines = [f"const {size} column = {f'i % {lengths}{last}' if last else 'i'};"]
    lines += [f"{step} {place} = {begin} + ({step})column * {by}{last};" for place, (begin, by) in places.items()]
    if last:
        lines.append(f"{size} row = i / {lengths}{last};")
        lines.append(add_places("row", lengths, last, {place: by for place, (_, by) in places.items()}, step))
    return joined(lines)
