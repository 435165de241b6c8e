"""Products of matrices on a GPU's tensor cores, for functions that ask for less than float32's precision.

A group computes a tile of the result, and each 32 items of it a part of the tile: as fragments that are spread over
their registers, by instructions that multiply 16 by 8 and 8 by 8 numbers. Tiles of both matrices are copied into local
memory several stages ahead, without registers in between (``cp.async``), and fragments are loaded from there by
``ldmatrix``, or word by word where the terms of a sum do not stand side by side. A tile has no gaps between its rows:
pieces of 16 bytes are exchanged within them so that what is loaded together lies in different banks.

Numbers of float32 are rounded to TF32, which has float32's exponent and ten bits after the point. Precision ``default``
multiplies these, ``high`` divides each number into two of them and multiplies three times. Numbers of float16 are
multiplied as they are. Sums are float32's.

References
----------
NVIDIA, "Parallel Thread Execution ISA" (mma.sync, ldmatrix, cp.async); Ootomo and Yokota, "Recovering single precision
accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance" (2022).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from optdb.codegen.gemm.launches import GemmPlan, by_tiles, product_kernel, run, total_kernel
from optdb.codegen.gemm.problem import FEW, Problem, classify
from optdb.codegen.kernels import CompiledKernel, Kernel, compile_kernels
from optdb.codegen.kernels.launching import LaunchCache
from optdb.codegen.source import body, filled, functions
from optdb.runtime.build import BuildError

if TYPE_CHECKING:
    from optdb.runtime.arrays import Array
    from optdb.runtime.context import Context

_logger = logging.getLogger(__name__)

#: How exact products of float32 are, as of the flag ``optdb.matmul_precision``.
Precision = Literal["highest", "high", "default"]

#: Which instructions a kernel has: those of the device, or functions that do the same on any.
Instructions = Literal["ptx", "emulated"]

#: How a kernel multiplies: numbers of TF32; those of float32, each divided into two of TF32; those of float16.
Arithmetic = Literal["tf32", "tf32x3", "float16"]
#: The arithmetic by the dtype of the matrices and the precision.
ARITHMETIC: dict[tuple[str, Precision], Arithmetic] = {
    ("float32", "default"): "tf32",
    ("float32", "high"): "tf32x3",
    ("float16", "default"): "float16",
    ("float16", "high"): "float16",
}
#: Items that execute an instruction of the tensor cores together.
WARP = 32
#: Words of terms that an instruction multiplies.
_STEP = 8
#: Bytes that are copied into local memory at once.
_PIECE = 16
#: What numbers are multiplied by before the bits below TF32's are cut off. It adds a half of what these can be on
#: average, and less than would change a number of TF32.
ROUNDING = "(1 + 0x1.555556p-12f)"
#: Rows of tiles that groups compute side by side.
_BAND = 8
#: Terms of a part of a sum, at least: adding up takes a launch of its own.
PART = 1024
#: Bytes of numbers.
_ITEM = 4


@dataclass(frozen=True)
class TensorBlock:
    """The tile of a product that a group computes by tensor cores."""

    #: Of the tile of the result.
    rows: int
    cols: int
    #: How many terms of each sum a stage in local memory has, and how many stages there are.
    depth: int
    stages: int
    #: Of the part of the result that each 32 items compute.
    warp_rows: int
    warp_cols: int

    @property
    def name(self) -> str:
        """What the kernels' names begin with."""
        return f"tensor_{self.rows}x{self.cols}x{self.depth}_{self.stages}_{self.warp_rows}x{self.warp_cols}"

    @property
    def items(self) -> int:
        """Work items in a group."""
        return (self.rows // self.warp_rows) * (self.cols // self.warp_cols) * WARP

    @property
    def stage_words(self) -> int:
        """How many numbers a stage has."""
        return (self.rows + self.cols) * self.depth

    @property
    def local_bytes(self) -> int:
        """How much local memory a group takes."""
        return self.stages * self.stage_words * _ITEM

    def unsupported_reason(self) -> str | None:
        """Tell why there can be no such block, None if there can."""
        if any(x < 1 or x & (x - 1) for x in (self.rows, self.cols, self.depth, self.warp_rows, self.warp_cols)):
            return "lengths are powers of two"
        if self.rows % self.warp_rows or self.cols % self.warp_cols:
            return "the parts of the items have to divide the tile"
        if self.warp_rows < 16 or self.warp_cols < 16 or not 8 <= self.depth <= 32 or min(self.rows, self.cols) < 32:
            return "instructions take 16 rows, twice 8 columns and 8 terms, and tiles at least 32 rows and columns"
        if self.stages < 2:
            return "one stage is copied while another one is multiplied"
        if self.items < max(self.rows, self.cols) or min(self.rows, self.cols) * self.depth // 4 % self.items:
            return "each item has to copy as many pieces as the others, and what it copies lie four rows apart"
        return None


def kernel_name(block: TensorBlock, arithmetic: Arithmetic, along: tuple[bool, bool]) -> str:
    """Return the name of a kernel: by its arithmetic, and whether terms stand side by side in each matrix."""
    return f"{block.name}_{arithmetic}_{''.join('nt'[side] for side in along)}"


def tensor_kernel(
    block: TensorBlock, arithmetic: Arithmetic, along: tuple[bool, bool], instructions: Instructions = "ptx"
) -> Kernel:
    """Return the kernel that multiplies by tiles of one shape, for matrices in one order.

    Parameters
    ----------
    block : TensorBlock
        The shape.
    arithmetic : {'tf32', 'tf32x3', 'float16'}
        What it multiplies.
    along : (bool, bool)
        For each of both matrices, whether tiles are copied along the terms of the sums.
    instructions : {'ptx', 'emulated'}
        The device's, or functions that do the same slowly.
    """
    code, dtype = functions("gemm/tensor_cores.cl"), _dtype(arithmetic)
    piece = _PIECE // np.dtype(dtype).itemsize
    copies: dict[str, str] = {}
    calls: dict[str, Any] = {}
    for letter, side, flag in zip("AB", (block.rows, block.cols), along):
        for what in ("piece", "whole", "wide", "single"):
            kind = "along" if flag else "across"
            name = calls[f"{letter}_{what.upper()}"] = f"{what}_{kind}_{side}"
            names = {f"{what}_{kind}_SIDE": name, f"piece_{kind}_SIDE": f"piece_{kind}_{side}"}
            copies[name] = filled(code[f"{what}_{kind}_SIDE"], **names, SIDE=side)
    loads: list[str] = []
    orders: dict[str, tuple[int, int]] = {}
    for letter, side, length, flag in zip("AB", ("left", "right"), (block.warp_rows, block.warp_cols), along):
        kind = "along" if flag else "across" if dtype == "float32" else "transposed"
        places = {"along": block.depth // _STEP, "across": max(length // 32, 1), "transposed": length // 16}
        calls[f"{letter}_PLACES"] = places[kind]
        calls[f"{letter}_PLACE"], calls[f"LOAD_{letter}"] = f"{side}_place_{kind}", f"load_{side}_{kind}"
        loads += [f"{side}_place_{kind}", f"load_{side}_{kind}"]
        # Numbers that stand side by side are rows, or columns, of different fragments.
        near = length // 8
        calls["ROW_OF" if letter == "A" else "PLACE_OF"] = ""
        if kind == "across":
            calls["LOAD_ROWS" if letter == "A" else "LOAD_COLS"] = f"load_{near}"
            loads.insert(0, f"load_{near}")
            calls["ROW_OF" if letter == "A" else "PLACE_OF"] = f"{side}_order"
            orders[f"{side}_order"] = (8, near) if letter == "A" else (near, 8)
    multiply, is_divided = f"multiply_{arithmetic}", arithmetic == "tf32x3"
    parts = [*functions(f"gemm/tensor_cores_{instructions}.cl").values(), *copies.values()]
    parts += [code[name] for name in dict.fromkeys((*loads, *["rest_of"] * is_divided, multiply, "MATMUL"))]
    stage = {
        name: filled(body(code[name.lower()]), WARP_ROWS=block.warp_rows, WARP_COLS=block.warp_cols) * is_divided
        for name in ("BEGIN_STAGE", "END_STAGE")
    }
    lanes_of_line = 32 // block.depth
    scratch = 0 if instructions == "ptx" else 6 * block.items
    words = {
        "MATMUL": kernel_name(block, arithmetic, along),
        "PIECE": piece,
        "TERMS": block.depth * piece // 4,
        "ROUNDING": ROUNDING,
        "copy_number": f"copy_number_{dtype}",
        "SUMS": "sums_of_stage" if is_divided else "acc",
        **stage,
        "ITEMS": block.items,
        "ROWS": block.rows,
        "COLS": block.cols,
        "DEPTH": block.depth,
        "STAGES": block.stages,
        "PENDING": block.stages - 2,
        "WARP_ROWS": block.warp_rows,
        "WARP_COLS": block.warp_cols,
        "STAGE_WORDS": block.stage_words,
        "TILE_WORDS": block.stages * block.stage_words,
        "LOCAL_WORDS": block.stages * block.stage_words + scratch,
        "MEMORY": "uint" if instructions == "ptx" else "__local uint *",
        "ADDRESS_OF": "(ulong)" if instructions == "ptx" else "",
        "BAND": _BAND,
        "A_ALONG": int(along[0]),
        "B_ALONG": int(along[1]),
        **calls,
        "MULTIPLY": multiply,
        "REPEAT_NAN": body(code["repeat_nan"]) if is_divided else "",
    }
    # Eight pieces of 16 bytes fill the banks once. Pieces of rows that lie in one line of them keep their order, and
    # those of the next line have another.
    # Items read one or two pieces next to each other in each of four rows.
    exchanged = "((l) % 2 * 3 + (l) / 2 % 2 * 4)" if dtype == "float32" else "((l) % 8)"
    macros = f"#define SWIZZLED(row) ((row) / {lanes_of_line} % {block.depth // 4})\n#define EXCHANGED(l) {exchanged}\n"
    for name, (inner, outer) in orders.items():
        macros += f"#define {name}(i) ((i) % {inner} * {outer} + (i) / {inner})\n"
    return product_kernel(macros + filled("\n".join(parts), **words), dtype)


def _dtype(arithmetic: Arithmetic) -> str:
    """Return the dtype of the matrices."""
    return "float16" if arithmetic == "float16" else "float32"


def multiply_add_function(ending: str, instructions: Instructions) -> str:
    """Return the function ``multiply_add`` for kernels of others, its name and those that it calls with an ending."""
    code = functions(f"gemm/tensor_cores_{instructions}.cl")
    called = ["multiply_add"] if instructions == "ptx" else ["half_of", "add_products", "multiply_add"]
    return filled("".join(code[name] for name in called), TILE_WORDS=0, **{name: name + ending for name in called})


def plan(problem: Problem, block: TensorBlock, arithmetic: Arithmetic, units: int) -> GemmPlan:
    """Return the launches that compute a product by tiles, on a device of `units` compute units."""
    tiles = problem.tiles(block.rows, block.cols)
    parts = max(min(-(-units // tiles), problem.k // PART), 1)
    # Parts of aligned rows stay aligned.
    terms = block.depth * (2 if arithmetic == "float16" else 1)
    return by_tiles(problem, kernel_name(block, arithmetic, problem.along), tiles, block.items, parts, terms)


@dataclass(frozen=True)
class _Prepared:
    """What a product takes."""

    plan: GemmPlan
    kernels: Mapping[str, CompiledKernel]
    #: Whether the matrices are turned over: where the result lies column by column.
    is_turned: bool


#: Of products that tensor cores do not gain anything from: of so few terms.
_FEW_TERMS = 16
#: Prepared products in the cache of a context.
_REMEMBERED = 1024
#: The block for each class of products, and whether numbers are divided into two. Measured on an NVIDIA H100.
_BLOCKS = {
    ("square", False): TensorBlock(128, 128, 16, 3, 64, 64),
    ("small", False): TensorBlock(64, 64, 32, 3, 32, 32),
    ("tiny", False): TensorBlock(32, 32, 32, 3, 16, 16),
    ("square", True): TensorBlock(128, 64, 16, 3, 64, 32),
    ("small", True): TensorBlock(64, 64, 32, 3, 32, 32),
    ("tiny", True): TensorBlock(64, 64, 32, 3, 32, 32),
}


def multiply(
    context: Context,
    problem: Problem,
    a: Array,
    b: Array,
    y: Array,
    z: Array,
    alpha: float,
    beta: float,
    precision: Precision,
) -> bool:
    """Compute a product by tensor cores, if the precision allows it and the device gains by it; return whether it did.

    The kernel is compiled when the first product of its kind is computed.
    """
    arithmetic = ARITHMETIC.get((z.dtype.name, precision))
    if arithmetic is None or not context.profile.has_tensor_cores:
        return False
    if min(problem.m, problem.n) <= FEW or problem.k < _FEW_TERMS:
        return False
    cache = context.kept.setdefault(__name__, LaunchCache(_REMEMBERED))
    prepared = cache.get((arithmetic, problem), lambda: _prepared(context, problem, arithmetic))
    if prepared is None:
        return False
    if prepared.is_turned:
        a, b = b, a
    run(prepared.plan, prepared.kernels, context, {"a": a, "b": b, "y": y, "z": z}, alpha, beta, "float32")
    return True


def _prepared(context: Context, problem: Problem, arithmetic: Arithmetic) -> _Prepared | None:
    """Return what a product takes; None if the device cannot compute it by tensor cores."""
    profile = context.profile
    is_turned = problem.z[2] != 1 and problem.z[1] == 1
    problem = problem.turned() if is_turned else problem
    name = classify(problem.batch, problem.m, problem.n, profile.compute_units)
    # Pieces of float16 are exchanged among eight in each row.
    name = "small" if name == "tiny" and arithmetic == "float16" else name
    block = _BLOCKS[name, arithmetic == "tf32x3"]
    if block.items > profile.max_local_size or block.local_bytes > profile.local_memory_bytes:
        return None
    needed = [tensor_kernel(block, arithmetic, problem.along), total_kernel(_dtype(arithmetic))]
    try:
        kernels = compile_kernels(needed, context, f"a product by {arithmetic}")
    except BuildError as error:
        _logger.warning("Products are of the highest precision, since their kernel does not build:\n%s", error.log)
        return None
    return _Prepared(plan(problem, block, arithmetic, profile.compute_units), kernels, is_turned)
