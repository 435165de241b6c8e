"""Targets for a fused loop's results: results are stored, folded, or added to other values.

Each work item or group accumulates into its own part, so that no item waits for another. Kernels that read the result
add up the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optdb.codegen.loops.body import Buffer, Index
from optdb.codegen.loops.body import Operand as Result
from optdb.codegen.scalars.types import c_type
from optdb.codegen.source import filled, functions

#: The OpenCL extension that atomic additions to 8-byte numbers need.
WIDE_ATOMICS = "cl_khr_int64_base_atomics"


@dataclass(frozen=True)
class ElementStore:
    """A result that is stored in a buffer at an affine index."""

    result: Result
    buffer: Buffer
    index: Index


@dataclass(frozen=True)
class ScatterStore:
    """A result that is stored in a buffer at a computed index."""

    result: Result
    buffer: Buffer
    index: Result


@dataclass(frozen=True)
class Fold:
    """A result that is folded over the domain; a buffer contains the parts one after another."""

    result: Result
    fold: str
    parts: Buffer
    number: int


@dataclass(frozen=True)
class ColumnSum:
    """A result by which each point scales a row of a matrix; the scaled rows of all points are added up."""

    result: Result
    matrix: Buffer
    offset: int
    row_stride: int
    length: int
    parts: Buffer


@dataclass(frozen=True)
class Scatter:
    """A result that is added to the element of a part at a computed index plus an offset."""

    result: Result
    index: Result
    offset: int
    size: int
    parts: Buffer
    #: The number of zero-initialized parts that work groups share, or 0 if each item has a part of its own.
    part_count: int = 0


Target = ElementStore | ScatterStore | Fold | ColumnSum | Scatter


def results_of(target: Target) -> list[Result]:
    """Return the results that a target uses."""
    if isinstance(target, ScatterStore | Scatter):
        return [target.result, target.index]
    return [target.result]


def buffer_of(target: Target) -> Buffer:
    """Return the buffer that a target writes."""
    return target.buffer if isinstance(target, ElementStore | ScatterStore) else target.parts


def moved(target: Target, value: Callable[[Result], Result]) -> Target:
    """Return a copy of a target for another body; `value` maps each result to the corresponding value in that body."""
    result = value(target.result)
    if isinstance(target, ScatterStore | Scatter):
        return replace(target, result=result, index=value(target.index))
    return replace(target, result=result)


def atomic_addition(dtype: str, takes_ptx: bool = False) -> str:
    """Return the code of a function that atomically adds to a number of 4 or 8 bytes."""
    kind, is_wide = c_type(dtype), np.dtype(dtype).itemsize == 8
    bits = "ulong" if is_wide else "uint"
    words = {"T": kind, "BITS": bits, "AS_BITS": f"as_{bits}", "AS_T": f"as_{kind}"}
    words["COMPARE_EXCHANGE"] = "atom_cmpxchg" if is_wide else "atomic_cmpxchg"
    if takes_ptx:
        types, registers = (("f32", "f64"), "fd") if np.dtype(dtype).kind == "f" else (("u32", "u64"), "rl")
        words |= {"TYPE": types[is_wide], "REGISTER": f'"{registers[is_wide]}"'}
    name = "add_by_instruction" if takes_ptx else "add_atomically"
    code = filled(functions("loops/loops.cl")[name], **{name: f"add_atomically_{kind}"}, **words)
    return f"#pragma OPENCL EXTENSION {WIDE_ATOMICS} : enable\n{code}" if is_wide else code
