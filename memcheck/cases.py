"""The table of cases: small arrays for each op with kernels.

Each line has an op and its inputs; see `memcheck.case.Case`. Sizes are not multiples of group and block sizes, and each
kernel of an op is launched for both kinds of devices. `python -m memcheck` lists kernels that are not launched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from theano import scalar
from theano.scalar import int8, int64
from theano.tensor import as_tensor_variable
from theano.tensor.elemwise import mul_without_zeros

from memcheck.axis_cases import AXIS_CASES
from memcheck.case import Case, Number, array, floats, wide
from memcheck.layer_cases import COPYING_GAPS, LAYER_CASES
from memcheck.linalg_cases import LINALG_CASES
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.host.api.graph import io_toposort
from optdb.host.api.variables import constant_slice
from optdb.opencl.ops.axes import OpenCLArgmax, OpenCLMaxAndArgmax
from optdb.opencl.ops.blas import (
    OpenCLBatchedDot,
    OpenCLBiasedDot22,
    OpenCLDot,
    OpenCLDot22,
    OpenCLDot22Scalar,
    OpenCLGemm,
    OpenCLGemv,
    OpenCLGer,
    OpenCLSavedProducts,
    OpenCLSparseBlockGemv,
    OpenCLSparseBlockOuter,
    OpenCLStackedDot22,
)
from optdb.opencl.ops.contiguous import OpenCLContiguous
from optdb.opencl.ops.elemwise import OpenCLElemwise, OpenCLPlacedElemwise
from optdb.opencl.ops.fused import OpenCLFused
from optdb.opencl.ops.memory import (
    OpenCLAlloc,
    OpenCLAllocDiag,
    OpenCLARange,
    OpenCLEye,
    OpenCLFillDiagonal,
    OpenCLFillDiagonalOffset,
    OpenCLTri,
)
from optdb.opencl.ops.parts import (
    OpenCLAdvancedBooleanIncSubtensor,
    OpenCLAdvancedBooleanSubtensor,
    OpenCLAdvancedIncSubtensor,
    OpenCLAdvancedIncSubtensor1,
    OpenCLAdvancedSubtensor,
    OpenCLAdvancedSubtensor1,
    OpenCLIncSubtensor,
    OpenCLJoin,
    OpenCLPad,
    OpenCLSplit,
    OpenCLTile,
)
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.softmax import (
    OpenCLCrossentropyAndGradient,
    OpenCLCrossentropyCategorical1Hot,
    OpenCLCrossentropyCategorical1HotGrad,
    OpenCLCrossentropySoftmax1HotWithBiasDx,
    OpenCLCrossentropySoftmaxArgmax1HotWithBias,
    OpenCLLogSoftmax,
    OpenCLSoftmax,
    OpenCLSoftmaxGrad,
    OpenCLSoftmaxWithBias,
)
from optdb.opencl.ops.views import OpenCLFlatten, OpenCLReshape, OpenCLSubtensor
from optdb.opencl.type import OpenCLArrayType

MIXED = ("float16", "float32", "float64", "int8", "complex64")

HALF, TWO = Number(0.5), Number(2.0)
#: Row numbers; some are repeated, and some are negative.
ROWS = np.array([3, 0, 3, -1, 1])
#: The class (label) of each of five rows.
CLASSES = np.array([2, 0, 6, 6, 1])

_ELEMWISE = [
    Case(OpenCLElemwise(scalar.exp), floats()),
    Case(OpenCLElemwise(scalar.exp), floats(0, 3)),
    Case(OpenCLElemwise(scalar.exp), floats(2, 3, 5)),
    Case(OpenCLElemwise(scalar.mul), floats(5, 1, 7), floats(1, 3, 1), floats(7)),
    Case(OpenCLElemwise(scalar.add, {0: 0}), floats(5, 7), floats(1, 7)),
    Case(OpenCLElemwise(scalar.add), floats(2 * 2048 + 3), floats(1)),
    Case(OpenCLElemwise(scalar.mod), array("int8", 5, 7), array("int64", 5, 1)),
    # One array is broadcast along the rows of the other one; the lengths of rows are multiples of four.
    Case(OpenCLElemwise(scalar.mul), floats(5, 3, 8), array("float32", 3, 1)),
    Case(OpenCLElemwise(scalar.mul), array("int8", 5, 1, 4), array("complex64", 1, 3, 4)),
    Case(OpenCLElemwise(scalar.mul), array("complex64", 5, 1, 7), array("complex64", 1, 3, 1), floats(7)),
    Case(OpenCLElemwise(scalar.pow), array("complex128", 37), array("complex128", 37)),
    Case(OpenCLElemwise(scalar.abs_), array("complex64", 2048 + 3)),
    Case(OpenCLElemwise(scalar.switch), array("bool", 5, 7), floats(5, 7), array("uint8", 1, 7)),
]


def _scaled(axis: list[int]) -> Any:
    """Return a function that sums an array over axes, and combines the sum with two other arrays in two ways."""

    def scaled(x: Any, *others: Any) -> Any:
        (total,) = OpenCLCAReduce(scalar.add, axis=axis).make_node(x).outputs
        result, factor, term = [scalar.get_scalar_type(y.type.dtype)() for y in (total, *others)]
        post = scalar.Composite([result, factor, term], [result * factor + term, result * factor])
        return OpenCLCAReduce(scalar.add, axis=axis, post_scalar_op=post)(x, *others, return_list=True)

    return scaled


def _several(axis: list[int]) -> Any:
    """Return a function that sums three expressions of two arrays in one pass, and adds a third array to each sum."""

    def several(x: Any, y: Any, *others: Any) -> Any:
        dtype = x.type.dtype
        product, square = (Scalar("Mul", dtype), (0, 1)), (Scalar("Sqr", dtype), (1,))
        pre = ScalarProgram((dtype, y.type.dtype), (product, square), (2, 3, 0))
        result = OpenCLCAReduce(scalar.add, axis=axis, pre_scalar_op=pre).make_node(x, y).outputs[0].type.dtype
        dtypes = (result,) * 3 + tuple([z.type.dtype for z in others])
        terms = tuple([(Scalar("Add", result), (i, 3)) for i in range(3)])
        post = ScalarProgram(dtypes, terms, (4, 5, 6)) if others else None
        return OpenCLCAReduce(scalar.add, axis=axis, pre_scalar_op=pre, post_scalar_op=post)(
            x, y, *others, return_list=True
        )

    return several


def _fused(x: Any, w: Any) -> Any:
    """Subtract the sum of each column from a matrix, and add the sums to a vector in place, as one group of ops."""
    inputs = [x.type(), w.type()]
    total = OpenCLCAReduce(scalar.add, axis=[0])(inputs[0])
    outputs = [OpenCLElemwise(scalar.sub)(inputs[0], total), OpenCLElemwise(scalar.add)(inputs[1], total)]
    op = OpenCLFused(inputs, outputs, io_toposort(inputs, outputs), {}, {1: 1})
    return op(x, w, return_list=True)


def _placed(x: Any, y: Any, width: int = 7) -> Any:
    """Write a sum and a product to slices of an array of zeros; return this array and a difference."""
    dtype, context_name = x.type.dtype, x.type.context_name
    steps = tuple([(Scalar(name, dtype), (0, 1)) for name in ("Add", "Mul", "Sub")])
    kind = OpenCLArrayType(dtype, (False, False), context_name)
    op = OpenCLPlacedElemwise(
        ScalarProgram((dtype, dtype), steps, (2, 3, 4)), kind, 1, ((0, width), (width, 2 * width))
    )
    return op(*map(as_tensor_variable, (5, 2 * width + width % 4)), x, y, return_list=True)


def _placed_rows_of_fours(x: Any, y: Any) -> Any:
    return _placed(x, y, 8)


def _padded(x: Any) -> Any:
    """Write an array, which is broadcast if necessary, to every other row of an array of zeros."""
    return _padded_to(x, (6, 7), [slice(int8, None, int8)], 1, 2)


def _padded_rows(x: Any) -> Any:
    """Write rows of four elements between rows of zeros."""
    return _padded_to(x, (6, 8), [slice(int8, int8)], 1, 4)


def _padded_columns(x: Any) -> Any:
    """Write rows of four elements beside columns of zeros."""
    return _padded_to(x, (3, 12), [slice(None), slice(None, int8)], 8)


def _padded_to(x: Any, shape: tuple[int, int], part: list[slice], *numbers: int) -> Any:
    kind = OpenCLArrayType(x.type.dtype, (False, False), x.type.context_name)
    return OpenCLPad.of_part(kind, part)(
        x, *map(as_tensor_variable, shape), *[scalar.constant(np.int8(n)) for n in numbers]
    )


def _saved_backwards(saved: Any, states: Any, wanted: Any, matrix: Any) -> Any:
    """Multiply a loop's states by a matrix, in the order from the last step to the first step."""
    backwards = OpenCLSubtensor([slice(None, None, int64)])(wanted, np.int64(-1))
    return OpenCLSavedProducts()(saved, states, backwards, matrix)


#: The shapes of a loop's saved products, all states, some of the states, a matrix and addends. No array is a view.
_STEPS = [(3, 5, 7), (4, 5, 9), (2, 5, 9), (9, 7), (3, 5, 7), (2, 5, 7)]


def _of_first_columns(op: Any) -> Any:
    """Return a function that applies an op to the first eight columns of a matrix, that is, to separated rows."""

    def of_first_columns(x: Any, *others: Any) -> Any:
        return op(OpenCLSubtensor([slice(None), slice(None, int64)])(x, np.int64(8)), *others)

    return of_first_columns


def _stacked(*matrices: Any) -> Any:
    """Add up two products."""
    a, b, c, d = matrices
    return OpenCLStackedDot22()(OpenCLJoin()(1, a, c), OpenCLJoin()(0, b, d), a, c, b, d)


_REDUCTIONS = [
    Case(OpenCLCAReduce(scalar.add), floats(3, 5, 7)),
    Case(OpenCLCAReduce(scalar.add, axis=[0]), floats(5, 37)),
    Case(OpenCLCAReduce(scalar.add, axis=[1]), floats(37, 5)),
    Case(OpenCLCAReduce(scalar.mul, axis=[0, 2]), floats(3, 5, 7)),
    Case(OpenCLCAReduce(scalar.add, axis=[1]), array("complex64", 37, 5)),
    Case(OpenCLCAReduce(scalar.mul, axis=[0]), array("complex128", 5, 37)),
    Case(OpenCLCAReduce(scalar.add), array("complex64", 2 * 4096 + 5)),
    Case(OpenCLCAReduce(mul_without_zeros, axis=[1]), floats(5, 37)),
    Case(OpenCLCAReduce(scalar.add), array("float32", 2 * 4096 + 5)),
    Case(OpenCLCAReduce(scalar.add, axis=[0]), array("float32", 519, 21)),
    Case(OpenCLCAReduce(scalar.add, axis=[1]), array("float32", 2, 2 * 4096 + 5)),
    Case(OpenCLCAReduce(scalar.maximum, axis=[0]), array("int8", 5, 7)),
    Case(OpenCLCAReduce(scalar.add, pre_scalar_op=scalar.mul), array("float32", 519, 1), array("float32", 1, 21)),
    Case(OpenCLCAReduce(scalar.add, axis=[0], pre_scalar_op=scalar.exp), floats(5, 37)),
    Case(OpenCLCAReduce(scalar.add, axis=[0, 2, 4]), floats(5, 3, 7, 2, 3)),
    Case(OpenCLCAReduce(scalar.add, axis=[0, 2, 3]), array("float32", 40, 3, 7, 5)),
    # This array has so many elements that kernels read four at a time.
    Case(
        OpenCLCAReduce(scalar.add, axis=[0, 2], pre_scalar_op=scalar.mul),
        array("float32", 128, 8, 64),
        array("float32", 1, 8, 1),
    ),
    Case(_scaled([0]), array("float32", 519, 21), array("float32", 21), array("float32", 1)),
    Case(_scaled([1]), array("float32", 21, 519), floats(21), array("int8", 21)),
    Case(_scaled([0, 1]), array("float32", 2 * 4096 + 5, 1), array("float32"), array("float32")),
    Case(_scaled([0, 2]), array("float16", 3, 5, 7), array("float32", 5), array("complex64", 5)),
    Case(_several([0]), array("float32", 519, 21), array("float32", 519, 21), array("float32", 21)),
    Case(_several([1]), array("float32", 21, 519), array("float32", 21, 1)),
    Case(_several([0, 2]), array("float32", 128, 8, 64), array("float32", 1, 8, 1), array("float32", 8)),
    Case(_several([0, 1]), array("float64", 2 * 4096 + 5, 1), array("float64", 1, 1)),
    Case(OpenCLMaxAndArgmax([1]), floats(5, 7)),
    Case(OpenCLMaxAndArgmax([0, 2]), floats(3, 5, 7)),
    Case(OpenCLArgmax([0]), floats(5, 7)),
]

_NEW = [
    *[Case(OpenCLEye(dtype), 5, 7, k) for dtype in MIXED for k in (0, -2, 3)],
    Case(OpenCLEye("float32"), 1, 1, 0),
    *[Case(OpenCLARange(dtype), 2, 37, 3) for dtype in MIXED[:4]],
    *[Case(OpenCLTri(dtype), 5, 7, 1) for dtype in MIXED[:4]],
    Case(OpenCLAlloc(), floats(), 5, 7),
    Case(OpenCLAlloc(), floats(5, 1), 3, 5, 7),
]

_PARTS = [
    Case(_placed, wide(5, 7), wide(5, 7)),
    Case(_placed, wide(1, 7), wide(1, 7)),
    Case(_placed_rows_of_fours, wide(5, 8), wide(5, 8)),
    Case(_fused, wide(5, 37), wide(37)),
    Case(_fused, wide(70, 5), wide(5)),
    *[Case(_padded, floats(*shape)) for shape in ((3, 7), (1, 7))],
    *[Case(padded, floats(3, 8)) for padded in (_padded_rows, _padded_columns)],
    Case(_saved_backwards, wide(3, 5, 7), wide(4, 5, 8), wide(2, 5, 8), wide(8, 7)),
    Case(OpenCLSavedProducts(), *[wide(*shape) for shape in _STEPS[:4]]),
    Case(OpenCLSavedProducts(), *[wide(*shape) for shape in _STEPS]),
    Case(OpenCLJoin(), 1, floats(5, 3), floats(5, 4), floats(5, 0)),
    Case(OpenCLJoin(), 0, *[floats(3, 5)] * 9),
    Case(OpenCLJoin(), 1, floats(5, 4), floats(5, 8)),
    Case(OpenCLSplit(2), floats(5, 12), 1, [4, 8]),
    Case(OpenCLAlloc(), floats(1, 8), 5, 8),
    Case(_of_first_columns(OpenCLContiguous()), floats(5, 12)),
    *[
        Case(_of_first_columns(OpenCLIncSubtensor([slice(None), slice(int8, int8)], False, setting)), *arrays, 4, 8)
        for setting in (False, True)
        for arrays in [(floats(5, 12), floats(5, 4))]
    ],
    Case(OpenCLIncSubtensor([slice(int8, int8)], False, False), floats(9, 8), floats(2, 8), 1, 3),
    Case(OpenCLIncSubtensor([slice(int8, int8)], False, True), floats(9, 8), floats(2, 8), 1, 3),
    Case(OpenCLJoin(), 0, array("int8", 3), array("float64", 4)),
    Case(OpenCLSplit(3), floats(5, 7), 1, np.array([3, 0, 4])),
    Case(OpenCLSplit(2), floats(7), 0, np.array([3, 4])),
    Case(OpenCLContiguous(), floats(3, 5, 7)),
    Case(OpenCLReshape(1), floats(3, 5, 7), np.array([-1])),
    Case(OpenCLReshape(2), floats(3, 5, 7), np.array([15, 7])),
    Case(_of_first_columns(OpenCLReshape(1)), floats(5, 12), np.array([-1])),
    Case(_of_first_columns(OpenCLFlatten(1)), floats(5, 12)),
    *[
        Case(OpenCLIncSubtensor([slice(int8, int8, int8)], inplace, setting), floats(9, 5), floats(*shape), 1, 9, 3)
        for inplace in (False, True)
        for setting in (False, True)
        for shape in [(3, 5), (1, 5), ()]
    ],
    Case(OpenCLIncSubtensor([slice(int8, int8)], False, False), floats(9, 5), floats(2, 5), 1, 3),
    Case(
        OpenCLIncSubtensor([slice(int8, int8)], True, False), array("complex64", 9, 5), array("complex64", 2, 5), 1, 3
    ),
    Case(OpenCLIncSubtensor([slice(int8, int8)], False, True), floats(9, 5), floats(2, 5), 1, 3),
    Case(OpenCLAdvancedSubtensor1(), floats(5, 3, 2), ROWS),
    Case(OpenCLAdvancedIncSubtensor1(False, False), array("complex128", 5, 7), array("complex128", 7), ROWS),
    *[
        Case(OpenCLAdvancedIncSubtensor1(inplace, setting), floats(5, 7), floats(*shape), ROWS)
        for inplace in (False, True)
        for setting in (False, True)
        for shape in [(5, 7), (7,)]
    ],
]

#: Indexes for two axes (some indexes are repeated, and some are negative), and a mask.
PLACES, OTHERS = np.array([[3], [-5]]), np.array([0, 2, 2, -1])
MASK = np.arange(15).reshape(5, 3) % 4 == 1


def _between(op: Any) -> Any:
    """Return a function that applies an op with the index [:, PLACES, ::-1, OTHERS]."""

    def between(*arrays: Any) -> Any:
        slices = [constant_slice(slice(None)), constant_slice(slice(None, None, -1))]
        return op(*arrays, slices[0], as_tensor_variable(PLACES), slices[1], as_tensor_variable(OTHERS))

    between.__name__ = str(op)
    return between


_INDEXES = [
    Case(OpenCLAdvancedSubtensor(), floats(5, 3, 2), PLACES, OTHERS),
    Case(OpenCLAdvancedSubtensor(), array("complex128", 5, 3), PLACES, OTHERS),
    Case(_between(OpenCLAdvancedSubtensor()), floats(2, 5, 7, 3)),
    Case(OpenCLAdvancedBooleanSubtensor(), floats(5, 3, 7), MASK),
    Case(OpenCLAdvancedBooleanSubtensor(), floats(5, 3), MASK & False),
    *[
        case
        for inplace in (False, True)
        for setting in (False, True)
        for op in [OpenCLAdvancedIncSubtensor(inplace, setting)]
        for case in [
            Case(op, floats(5, 3, 2), floats(2, 4, 2), PLACES, OTHERS),
            Case(op, floats(5, 3, 2), floats(4, 1), PLACES, OTHERS),
            Case(_between(op), floats(2, 5, 7, 3), floats()),
            Case(OpenCLAdvancedBooleanIncSubtensor(inplace, setting), floats(5, 3, 7), floats(7), MASK),
            Case(OpenCLAdvancedBooleanIncSubtensor(inplace, setting), floats(5, 5), floats(2), MASK[:, 1], PLACES),
        ]
    ],
    Case(OpenCLAllocDiag(), floats(1)),
    Case(OpenCLFillDiagonal(), floats(1, 1), floats()),
    Case(OpenCLFillDiagonal(), floats(5, 3), floats()),
    Case(OpenCLFillDiagonal(), floats(3, 3, 3), floats()),
    Case(OpenCLFillDiagonalOffset(), floats(1, 1), floats(), 0),
    Case(OpenCLFillDiagonalOffset(), floats(3, 5), floats(), -1),
    Case(OpenCLAllocDiag(-2, 2, 0), floats(3, 5)),
    Case(OpenCLTile(1), floats(5), np.array([1])),
    Case(OpenCLTile(3), floats(3, 5), np.array([2, 1, 3])),
    Case(OpenCLFlatten(2), floats(3, 5, 7)),
]

#: Sizes (rows, inner length, columns) of matrix products that have partial blocks at the edges, for each block shape.
_SHAPES = [(9, 5, 37), (37, 5, 9), (26, 37, 27), (50, 3, 51), (75, 3, 70), (127, 3, 130)]

#: For each of three batch elements, the indices of two of four input blocks and of three of five output blocks.
INS, OUTS = np.array([[0, 3], [-4, 3], [1, 1]]), np.array([[4, 0, -1], [2, 2, 2], [-5, 1, 3]])

_PRODUCTS = [
    *[
        case
        for inplace in (False, True)
        for case in [
            Case(OpenCLSparseBlockGemv(inplace), floats(3, 3, 19), floats(4, 5, 7, 19), floats(3, 2, 7), INS, OUTS),
            Case(OpenCLSparseBlockOuter(inplace), floats(4, 5, 7, 9), floats(3, 2, 7), floats(3, 3, 9), INS, OUTS),
        ]
    ],
    *[Case(OpenCLDot22(), floats(m, k), floats(k, n)) for m, k, n in _SHAPES],
    # This case makes one tile run in float64 even if `once` runs the other cases in another dtype.
    Case(OpenCLDot22(), array("float64", 50, 3), array("float64", 3, 51)),
    Case(OpenCLDot22(), floats(3, 5), floats(5, 7)),
    # Kernels read the tiles of these products four numbers at a time.
    *[Case(OpenCLDot22(), array("float32", m, k), array("float32", k, n)) for m, k, n in [(26, 40, 28), (33, 44, 36)]],
    Case(OpenCLGemm(True), array("float32", 26, 28), HALF, array("float32", 26, 36), array("float32", 36, 28), TWO),
    # The sums in these products are so long that they are split into partial sums.
    Case(OpenCLDot22(), array("float32", 3, 512), array("float32", 512, 7)),
    Case(OpenCLDot22(), array("float16", 5, 512), array("float16", 512, 8)),
    Case(OpenCLGemm(True), *[array("float32", 3, 9), HALF, array("float32", 3, 512), array("float32", 512, 9), TWO]),
    Case(OpenCLBiasedDot22(), floats(5, 3), floats(3, 7), floats(7)),
    Case(_stacked, floats(5, 3), floats(3, 7), floats(5, 4), floats(4, 7)),
    Case(OpenCLDot22Scalar(), floats(9, 5), floats(5, 37), HALF),
    *[Case(OpenCLGemm(inplace), floats(9, 37), HALF, floats(9, 5), floats(5, 37), TWO) for inplace in (False, True)],
    *[Case(OpenCLGemv(inplace), floats(37), HALF, floats(37, 11), floats(11), TWO) for inplace in (False, True)],
    Case(OpenCLGemv(True), floats(3), HALF, floats(3, 2 * 4096 + 5), floats(2 * 4096 + 5), TWO),
    *[Case(OpenCLGer(destructive), wide(5, 7), HALF, wide(5), wide(7)) for destructive in (False, True)],
    Case(OpenCLGer(True), wide(1, 1), HALF, wide(1), wide(1)),
    Case(OpenCLDot(), floats(11), floats(11)),
    Case(OpenCLDot(), floats(37, 11), floats(11)),
    # On a GPU, a work item computes several rows of this product.
    Case(OpenCLDot(), array("float32", 9000, 3), array("float32", 3)),
    Case(OpenCLDot(), floats(11), floats(11, 37)),
    Case(OpenCLDot(), floats(9, 5), array("float32", 5, 37)),
    Case(OpenCLBatchedDot(), floats(3, 5, 7), floats(3, 7, 33)),
    Case(OpenCLBatchedDot(), floats(3, 7), floats(3, 7)),
]

_CLASSIFIERS = [
    Case(OpenCLSoftmax(), floats(5, 7)),
    Case(OpenCLSoftmax(), floats(300, 3)),
    Case(OpenCLSoftmax(), floats(3, 1100)),
    Case(OpenCLSoftmax(), floats(2, 2100)),
    Case(OpenCLLogSoftmax(), floats(5, 7)),
    Case(OpenCLSoftmaxWithBias(), floats(5, 7), floats(7)),
    Case(OpenCLSoftmaxGrad(), floats(5, 7), floats(5, 7)),
    Case(OpenCLCrossentropySoftmaxArgmax1HotWithBias(), floats(5, 7), floats(7), CLASSES),
    # These rows are read four numbers at a time, because their length is a multiple of four.
    Case(OpenCLCrossentropySoftmaxArgmax1HotWithBias(), array("float32", 5, 12), array("float32", 12), CLASSES),
    Case(OpenCLCrossentropySoftmax1HotWithBiasDx(), floats(5), floats(5, 7), CLASSES),
    *(
        Case(OpenCLCrossentropyAndGradient(), floats(5, columns), floats(columns), CLASSES, floats(rows))
        for columns, rows in ((7, 5), (1300, 1))
    ),
    Case(OpenCLCrossentropyCategorical1Hot(), floats(5, 7), CLASSES),
    Case(OpenCLCrossentropyCategorical1HotGrad(), floats(5), floats(5, 7), CLASSES),
]

CASES = [
    *AXIS_CASES,
    *_ELEMWISE,
    *_REDUCTIONS,
    *_NEW,
    *_PARTS,
    *_INDEXES,
    *_PRODUCTS,
    *_CLASSIFIERS,
    *LAYER_CASES,
    *LINALG_CASES,
]

_COPIES_GAPS = "it only copies arrays that are not contiguous"
_WIDE = "it is for more than 2**32 elements, on GPUs"
_SPREADS_WHAT_BROADCASTS = "it only copies arrays that broadcast"

#: Prefixes of the names of kernels that all ops launch with the same code; such a kernel counts as run if any op
#: launches it.
SHARED = ("matmul_", "matvec_")

#: Maps each kernel that an op has but never launches to the reason.
NEVER = {
    **{
        (f"OpenCL{name}", "copy_alike"): _COPIES_GAPS
        for name in ("AdvancedSubtensor1", "Contiguous", "Reshape", "Flatten", "CumOp", "SavedProducts")
    },
    **{(f"OpenCL{name}Op", "copy_alike"): _COPIES_GAPS for name in ("ArgSort", "Searchsorted")},
    **{(f"OpenCL{name}", "move_alike"): _COPIES_GAPS for name in ("RFFTOp", "IRFFTOp")},
    ("OpenCLIRFFTOp", "write_strided"): "its input and output are contiguous",
    **{(f"OpenCL{name}", "copy1_alike"): _COPIES_GAPS for name in ("Conv", "ConvGradWeights", "ConvGradInputs")},
    ("OpenCLConvGradInputs", "copy0_alike"): _COPIES_GAPS,
    **{(f"OpenCL{name}", "copy_alike"): _COPIES_GAPS for name in COPYING_GAPS},
    **{
        (f"OpenCL{name}", f"{kernel}_wide"): _WIDE
        for name, kernels in {
            **dict.fromkeys(("Elemwise", "PlacedElemwise"), ("elements",)),
            **dict.fromkeys(("Join", "Split", "Contiguous", "Alloc", "AllocDiag", "Reshape", "Flatten"), ("copy",)),
            "SavedProducts": ("copy",),
            "IncSubtensor": ("copy", "inc", "set"),
            "Pad": ("set",),
            "BatchNormTrain": ("normalize",),
        }.items()
        for kernel in kernels
    },
    **{(f"OpenCL{name}", "copy_quads"): _COPIES_GAPS for name in ("Contiguous", "Reshape", "Flatten", "SavedProducts")},
    ("OpenCLAllocDiag", "copy_row_quads"): "the elements of a diagonal are not contiguous",
    ("OpenCLPlacedElemwise", "copy_alike"): "slices have gaps between their rows, or one row broadcasts",
    ("OpenCLAdvancedIncSubtensor", "spread_alike"): _SPREADS_WHAT_BROADCASTS,
    ("OpenCLAdvancedBooleanIncSubtensor", "spread_alike"): _SPREADS_WHAT_BROADCASTS,
}
