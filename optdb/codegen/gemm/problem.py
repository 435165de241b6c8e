"""Numeric descriptions of matrix products (lengths, strides and classes), and the base class of tile shapes.

Strides are in elements. Products always have a batch, possibly of length 1; an array shared by all products of a batch
has a batch stride of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from optdb.runtime.arrays import Array

#: Precision of float32 products, as in the flag ``optdb.matmul_precision``.
Precision = Literal["highest", "high", "default"]
#: How tensor cores multiply: in TF32; in float32, with each number split into two TF32 numbers; or in float16.
Arithmetic = Literal["tf32", "tf32x3", "float16"]
#: Maps the dtype of the matrices and the precision to the arithmetic.
ARITHMETIC: dict[tuple[str, Precision], Arithmetic] = {
    ("float32", "default"): "tf32",
    ("float32", "high"): "tf32x3",
    ("float16", "default"): "float16",
    ("float16", "high"): "float16",
}
#: Products with fewer terms gain nothing from tensor cores.
FEW_TERMS = 16
#: For each of the two matrices, whether it is contiguous along the terms of a sum (the inner dimension).
Along = tuple[bool, bool]
#: The classes of products; each has a block shape.
CLASSES = ("square", "small", "tiny", "flat", "narrow")

#: Products with at most `FEW` rows are flat; products with at most `FEW` columns are narrow.
FEW = 24
#: Products with fewer result elements per compute unit than these limits are small or tiny. Measured on an H100: if one
#: phase of a persistent launch computes several products with 1,985 elements per compute unit, the tiles for small
#: products take a fifth less time than the tiles for tiny ones.
SMALL, TINY = 1 << 14, 1 << 10


@dataclass(frozen=True)
class Problem:
    """``z = alpha * dot(a, b) + beta * y``, for each matrix of a batch."""

    #: Batch size, and lengths: `a` is m by k, `b` is k by n.
    batch: int
    m: int
    n: int
    k: int
    #: Strides of the batch, the rows and the columns, in elements.
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    y: tuple[int, int, int]
    z: tuple[int, int, int]
    #: Whether `y` is added.
    add: bool

    def transposed(self) -> Problem:
        """Return the problem for the transposed result: the product of the transposed matrices in reverse order."""
        a, b, y, z = ((steps[0], steps[2], steps[1]) for steps in (self.b, self.a, self.y, self.z))
        return Problem(self.batch, self.n, self.m, self.k, a, b, y, z, self.add)

    @property
    def along(self) -> Along:
        """For each matrix, whether neighbouring terms are at most as far apart as neighbouring rows or columns."""
        return abs(self.a[2]) <= abs(self.a[1]), abs(self.b[1]) <= abs(self.b[2])

    @property
    def is_too_small(self) -> bool:
        """Whether the product gains nothing from tensor cores."""
        return min(self.m, self.n) <= FEW or self.k < FEW_TERMS

    def tiles(self, tile: GroupTile) -> int:
        """Return the number of tiles of the result."""
        return -(-self.m // tile.rows) * -(-self.n // tile.cols) * self.batch


@dataclass(frozen=True)
class GroupTile:
    """The tile of a product that a GPU's work group computes from tiles of both matrices in local memory."""

    #: Tile size of the result.
    rows: int
    cols: int
    #: Number of terms of each sum that the tiles in local memory, or in one of its stages, contain.
    depth: int

    @property
    def items(self) -> int:
        """The work-group size."""
        raise NotImplementedError

    def words(self) -> dict[str, int]:
        """Return the tile's lengths, keyed by their placeholders in kernels."""
        return {name.upper(): length for name, length in vars(self).items()} | {"ITEMS": self.items}


def kernel_dtype(dtype: str) -> str:
    """Return the dtype of the kernels for matrices of a dtype: integers are multiplied as unsigned integers.

    The bits of the results are the same, but C does not define the overflow of signed integers.
    """
    return f"u{dtype}" if dtype.startswith("int") else dtype


def dtype_of(arithmetic: Arithmetic) -> str:
    """Return the dtype of the matrices."""
    return "float16" if arithmetic == "float16" else "float32"


def classify(batch: int, m: int, n: int, units: int) -> str:
    """Return the class for `batch` products with `m` rows and `n` columns on a device with `units` compute units."""
    if n <= FEW:
        return "narrow"
    if m <= FEW:
        return "flat"
    share = batch * m * n // units
    return "tiny" if share < TINY else "small" if share < SMALL else "square"


def steps(x: Array, batch: int) -> tuple[int, int, int]:
    """Return the strides, in elements, of a matrix or a batch of matrices, broadcast to `batch` matrices."""
    item = x.dtype.itemsize
    inner = (x.strides[-2] // item, x.strides[-1] // item)
    if x.ndim == 2 or (x.shape[0] == 1 and batch != 1):
        return (0, *inner)
    return (x.strides[0] // item, *inner)


def check(a: Sequence[int], b: Sequence[int], y: Sequence[int] | None, z: Sequence[int]) -> None:
    """Raise ValueError unless the shapes of matrices, or of batches of matrices, match."""
    fits = len(a) == len(b) == len(z) and a[-1] == b[-2] and tuple(z[-2:]) == (a[-2], b[-1])
    fits = fits and all(x[0] in (1, z[0]) for x in (a, b) if len(z) == 3)
    if not fits or (y is not None and tuple(y) != tuple(z)):
        added = "" if y is None else f", added to an array of {tuple(y)},"
        raise ValueError(
            f"shapes do not match: a product of {tuple(a)} and {tuple(b)}{added} for an array of {tuple(z)}"
        )
