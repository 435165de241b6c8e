"""The kernels that multiply matrices of TF32 by whole warpgroups, on the tensor cores of NVIDIA's Hopper.

A warpgroup, which is 128 items, multiplies 64 rows by all columns of a tile at once (``wgmma``). In the background, the
instruction reads the left matrix from registers and the right one from local memory, in which the terms of a column
stand side by side. Meanwhile items load numbers of later stages into registers, round them to TF32, and store those of
the right matrix, transposed.

An item loads sixteen numbers of the right matrix at a time, which is a unit: four terms of each of four columns. The
terms of a stage are added up in an order in which an item loads neighbours of either matrix. Pieces of 16 bytes are
exchanged between the lines of local memory as the instruction expects it, so that what is read together lies in
different banks.

OpenCL C's compiler does not know the instruction. It is written as a comment, see `optdb.runtime.marked_ptx`.

References
----------
NVIDIA, "Parallel Thread Execution ISA" (wgmma.mma_async, matrix descriptor, fence.proxy.async).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.gemm.tensor_kernels import BAND, MEMORY_WORDS, ROUNDING, Instructions
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import filled, functions
from optdb.runtime.marked_ptx import DIRECTIVE_MARK, MARK

#: Items that execute an instruction together, and the rows that it multiplies.
WARPGROUP, _WARPGROUP_ROWS = 128, 64
#: Terms of the sums that an instruction multiplies.
_STEP = 8
#: Terms of a stage, and stages in local memory: two are multiplied while one is stored.
_DEPTH, _STAGES = 16, 3
#: Numbers of the right matrix that an item loads at a time.
_UNIT = 16
#: Stages of both matrices in registers, see the loop in ``warpgroup.cl``.
_LEFT_SETS, _RIGHT_SETS = 4, 2
#: Registers of a unit, of an item at most, and of an item beside those for sums and for numbers that it loads.
_UNIT_REGISTERS, _MOST_REGISTERS, _OTHER_REGISTERS = 1 << 16, 255, 56
#: Terms of a sum, at least, for which kernels are quick.
_LONG_SUM = 1024
#: Bytes of numbers.
_ITEM = 4


@dataclass(frozen=True)
class WarpgroupBlock:
    """The tile of a product that a group computes by warpgroups, each of which takes 64 rows."""

    #: Of the tile of the result.
    rows: int
    cols: int

    @property
    def name(self) -> str:
        """What the kernels' names begin with."""
        return f"warpgroups_{self.rows}x{self.cols}"

    @property
    def depth(self) -> int:
        """How many terms of each sum a stage has."""
        return _DEPTH

    @property
    def items(self) -> int:
        """Work items in a group."""
        return self.rows // _WARPGROUP_ROWS * WARPGROUP

    @property
    def stage_words(self) -> int:
        """How many numbers of the right matrix a stage has, which are those in local memory."""
        return self.cols * _DEPTH

    @property
    def local_bytes(self) -> int:
        """How much local memory a group takes."""
        return _STAGES * self.stage_words * _ITEM

    @property
    def units(self) -> int:
        """How many units of the right matrix an item loads."""
        return -(-self.cols // self.items)

    @property
    def groups(self) -> int:
        """How many groups share the registers of a unit."""
        registers = self.cols // 2 + _LEFT_SETS * 8 + _RIGHT_SETS * _UNIT * self.units + _OTHER_REGISTERS
        return max(_UNIT_REGISTERS // (self.items * registers), 1)

    def unsupported_reason(self) -> str | None:
        """Tell why there can be no such block, None if there can."""
        if self.rows % _WARPGROUP_ROWS or self.cols % 64 or not 64 <= self.cols <= 256:
            return "warpgroups take 64 rows each, and 64 to 256 columns"
        if self.cols % self.items and self.items % self.cols:
            return "each item has to load as many units as the others, or one"
        return None


def kernel_name(block: WarpgroupBlock) -> str:
    """Return the name of a kernel."""
    return f"{block.name}_tf32"


def suits(problem: Problem) -> bool:
    """Tell whether the kernels are quick for a product.

    They are where the terms of long sums stand side by side in the left matrix, and apart in the right one, and rows
    are aligned to pieces of 16 bytes.
    """
    is_aligned = problem.k % 4 == problem.n % 4 == problem.a[1] % 4 == problem.b[1] % 4 == 0
    return is_aligned and problem.a[2] == problem.b[2] == 1 and problem.k >= _LONG_SUM


def warpgroup_kernel(block: WarpgroupBlock, instructions: Instructions = "ptx") -> Kernel:
    """Return the kernel that multiplies by tiles of one shape, which is quick for matrices that `suits` tells.

    Parameters
    ----------
    block : WarpgroupBlock
        The shape.
    instructions : {'ptx', 'emulated'}
        The device's, or functions that do the same slowly.
    """
    code = {**functions(f"gemm/warpgroup_{instructions}.cl"), **functions("gemm/warpgroup.cl")}
    # The kernel calls the others.
    text = "\n".join([*(text for name, text in code.items() if name != "MATMUL"), code["MATMUL"]])
    words = {
        **{"MATMUL": kernel_name(block), "BAND": BAND},
        **_shape_words(block, instructions),
        **MEMORY_WORDS[instructions],
        **_instruction_words(block),
    }
    return product_kernel(_macros(block) + filled(text, **words), "float32")


def _shape_words(block: WarpgroupBlock, instructions: Instructions) -> dict[str, Any]:
    """Return the words of a tile's shape, and of its stages in local memory."""
    memory = _STAGES * block.stage_words
    return {
        **{"ITEMS": block.items, "ROWS": block.rows, "COLS": block.cols, "DEPTH": _DEPTH, "UNITS": block.units},
        **{"STAGES": _STAGES, "PENDING": _STAGES - 2, "STAGE_WORDS": block.stage_words, "ROUNDING": ROUNDING},
        # Emulated instructions exchange fragments.
        "LOCAL_WORDS": memory + 8 * block.items * (instructions == "emulated"),
    }


def _macros(block: WarpgroupBlock) -> str:
    """Return the macros of who loads what, of the order of pieces in local memory, and of rows and columns.

    Number `e` of vector `q` that an item stores is in some fragment of eight columns, on one of the two sides that an
    item has of each. Columns are in such an order that an item gets the sums of four neighbours, which another one
    loaded at once; a piece has each fourth term, so that an item loads four neighbouring terms of a row.
    """
    quarter = block.cols // 4
    macros = {
        "UNIT(u)": f"((u) * {block.items} + item)",
        "IS_UNIT(u)": f"({int(block.cols % block.items == 0)} || UNIT(u) < {block.cols})",
        "SWIZZLED(row)": "((row) / 2 % 4 * 4)",
        "A_ROW(h)": "(int)(warp * 16 + g + 8 * (h))",
        "B_COLUMN(unit)": f"(int)((unit) % {quarter} * 4)",
        "B_TERM(unit)": f"((unit) / {quarter})",
        "B_PLACE(unit)": f"((unit) % {quarter} * 16 + ((unit) / {quarter} * 4 ^ SWIZZLED((unit) % {quarter})))",
        "FRAGMENT(q, e)": f"((e) * {block.cols // 32} + (q) / 2)",
        "SIDE_OF_FRAGMENT(q, e)": "((q) % 2)",
        "COLUMN(q)": "(4 * ((q) / 2 * 8 + 2 * r + (q) % 2))",
    }
    return "".join([f"#define {macro} {meaning}\n" for macro, meaning in macros.items()])


def _instruction_words(block: WarpgroupBlock) -> dict[str, str]:
    """Return the words of the instructions: the multiplications of a stage, and what they add to."""
    return {
        **{"MARK": MARK, "DIRECTIVE_MARK": DIRECTIVE_MARK, "REGISTERS": str(_registers(block))},
        "ACCUMULATORS": ", ".join([f'"+f"(acc[{number}])' for number in range(block.cols // 2)]),
        "LEFT_NUMBERS": ", ".join([f'"r"(as_uint(left[{number}]))' for number in range(8)]),
        # Eight rows are a block of 512 bytes, whose pieces are exchanged as for lines of 64 bytes.
        "DESCRIPTOR": f"{2 << 62 | 512 >> 4 << 32 | 1 << 16:#x}UL",
        "MULTIPLICATIONS": "\n".join([f'"{MARK} {line}\\n"' for line in _multiplications(block)]),
    }


def _registers(block: WarpgroupBlock) -> int:
    """Return how many registers an item may take: a multiple of eight."""
    return min(_UNIT_REGISTERS // (block.items * block.groups) // 8 * 8, _MOST_REGISTERS)


def _multiplications(block: WarpgroupBlock) -> list[str]:
    """Return the instructions that multiply a stage.

    Operands are the sums, eight numbers of the left matrix, the descriptor of the right one, and whether to add.
    """
    count = block.cols // 2
    sums = ", ".join([f"%{number}" for number in range(count)])
    lines = ["{", ".reg .pred adds;", ".reg .b64 right;", f"setp.ne.u32 adds, %{count + 9}, 0;"]
    lines.append("wgmma.fence.sync.aligned;")
    for step in range(_DEPTH // _STEP):
        if step == 1:
            lines.append("setp.eq.u32 adds, 0, 0;")
        left = ", ".join([f"%{count + 4 * step + number}" for number in range(4)])
        # Descriptors count 16 bytes.
        lines.append(f"add.s64 right, %{count + 8}, {step * _STEP * _ITEM >> 4};")
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{block.cols}k8.f32.tf32.tf32 {{{sums}}}, {{{left}}}, right, adds, 1, 1;"
        )
    return [*lines, "wgmma.commit_group.sync.aligned;", "}"]
