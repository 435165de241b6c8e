"""Cases for random numbers, and for ops along an axis such as cumulative sums, sorting and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from memcheck.case import Case, array, floats, values
from optdb.opencl import OpenCLArrayType
from optdb.opencl.ops.axes import (
    OpenCLArgSortOp,
    OpenCLCumOp,
    OpenCLIRFFTOp,
    OpenCLRFFTOp,
    OpenCLSearchsortedOp,
    OpenCLSortOp,
    OpenCLTopKOp,
)
from optdb.opencl.ops.random import OpenCLChoiceFromUniform, OpenCLMRGUniform, OpenCLMultinomialFromUniform


def _uniform(dtype: str, *size: int, inplace: bool = False) -> Callable[[Any], Any]:
    """Return a function that draws numbers from a state."""

    def uniform(state: Any) -> Any:
        kind = OpenCLArrayType(dtype, (False,) * len(size), state.type.context_name)
        return OpenCLMRGUniform(kind, inplace)(state, np.array(size))

    uniform.__name__ = f"OpenCLMRGUniform of {dtype} {size}"
    return uniform


STATE = values(np.arange(19 * 6).reshape(19, 6) * 1234567 + 1, "int32")
#: Rows of probabilities, and three numbers for each row.
CHANCES, DRAWS = floats(5, 7), floats(15)

AXIS_CASES = [
    *[Case(_uniform(dtype, 7, 9), STATE) for dtype in ("float16", "float32", "float64")],
    Case(_uniform("float32", 3, inplace=True), STATE),
    Case(OpenCLMultinomialFromUniform("auto"), CHANCES, DRAWS, 3),
    Case(OpenCLChoiceFromUniform("auto"), CHANCES, DRAWS, 3),
    Case(OpenCLCumOp(None, "add"), floats(3, 5)),
    Case(OpenCLCumOp(1, "mul"), array("int8", 3, 5, 7)),
    Case(OpenCLCumOp(0, "add"), floats(1100)),
    Case(OpenCLCumOp(1, "mul"), array("float32", 2, 1100)),
    Case(OpenCLSortOp("quicksort"), floats(5, 7), 0),
    Case(OpenCLSortOp("quicksort"), array("int16", 601), 0),
    Case(OpenCLArgSortOp("quicksort"), floats(7, 5), 0),
    Case(OpenCLArgSortOp("quicksort"), floats(3, 261), 1),
    Case(OpenCLSortOp("quicksort"), floats(5, 1), 0),
    Case(OpenCLArgSortOp("quicksort"), floats(5, 1), 0),
    Case(OpenCLTopKOp(0, False), floats(7), 7),
    Case(OpenCLTopKOp(0, False, "int16"), floats(265, 2), 3),
    *[Case(OpenCLRFFTOp(), floats(2, *shape), np.array(shape)) for shape in [(5, 8), (37,), (12,)]],
    Case(OpenCLRFFTOp(), floats(5, 3, 7), np.array([2, 9])),
    *[Case(OpenCLIRFFTOp(), floats(3, *shape, 2), np.array([6, 2 * shape[-1] - 1])) for shape in [(6, 4), (5, 2)]],
    *[Case(OpenCLIRFFTOp(), floats(5, *shape, 2), np.array([n])) for shape, n in [((3,), 4), ((19,), 37)]],
    *[Case(OpenCLRFFTOp(), floats(1, 1), np.array([1])), Case(OpenCLIRFFTOp(), floats(1, 1, 2), np.array([1]))],
    *[Case(OpenCLSearchsortedOp(side), floats(7), array("int32", 5, 3)) for side in ("left", "right")],
    Case(OpenCLTopKOp(1, False, return_indices=False), array("uint8", 3, 37), -5),
]
