"""Exported ops pin exactly the lengths that the tables below list with the reasons.

Each op with kernels is exported with a case from memcheck's table, which has a case for each of these ops.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import constant

from memcheck.case import Case, Given, Number
from memcheck.cases import CASES
from optdb.opencl import OpenCLArrayType
from optdb.opencl.exporting import Untraceable, export

pytestmark = pytest.mark.usefixtures("default")

#: For these ops, indexes can be arguments of an exported function; other host arrays are constants.
INDEXED_BY_ARGUMENTS = {
    "OpenCLAdvancedSubtensor1",
    "OpenCLAdvancedIncSubtensor1",
    "OpenCLCrossentropySoftmaxArgmax1HotWithBias",
    "OpenCLCrossentropySoftmax1HotWithBiasDx",
    "OpenCLCrossentropyCategorical1Hot",
    "OpenCLCrossentropyCategorical1HotGrad",
    "OpenCLCrossentropyAndGradient",
}

_PLACES = "the host turns indexes into places, for which it asks how the array lies"
#: Ops that are valid only for the example's shapes, and the reason.
FIXED = {
    "OpenCLAdvancedSubtensor": _PLACES,
    "OpenCLAdvancedBooleanSubtensor": _PLACES,
    "OpenCLAdvancedIncSubtensor": _PLACES,
    "OpenCLAdvancedBooleanIncSubtensor": _PLACES,
    "OpenCLSparseBlockGemv": _PLACES,
    "OpenCLSparseBlockOuter": _PLACES,
}

_IMAGES = "kernels are made for images and filters of one size"
_HALVES = "a large matrix is split, again and again"
_GIVEN = "the case says how many, by a constant"
#: Ops that pin lengths: the inputs and their axes, and the reason.
PINNED = {
    "OpenCLConv": ({0: {1, 2, 3, 4}, 1: {0, 1, 2, 3, 4, 5}}, _IMAGES),
    "OpenCLConvGradWeights": ({0: {1, 2, 3, 4}, 1: {1, 2, 3, 4}}, _IMAGES),
    "OpenCLConvGradInputs": ({0: {0, 1, 2, 3, 4, 5}, 1: {1, 2, 3, 4}}, _IMAGES),
    "OpenCLRFFTOp": ({0: {1, 2}}, "how a transform is computed depends on the factors of its length"),
    "OpenCLIRFFTOp": ({0: {1, 2}}, "how a transform is computed depends on the factors of its length"),
    "OpenCLCholesky": ({0: {0, 1}}, _HALVES),
    "OpenCLSolveTriangular": ({0: {0, 1}, 1: {0}}, _HALVES),
    "OpenCLMRGUniform": ({0: {1}}, "a state has six numbers"),
    "OpenCLAlloc": ({0: {0, 1}}, _GIVEN),
    "OpenCLIncSubtensor": ({1: {0}}, _GIVEN),
    "OpenCLReshape": ({0: {0, 1, 2}}, _GIVEN),
    "OpenCLSplit": ({0: {0, 1}}, _GIVEN),
    "_placed": ({0: {0, 1}, 1: {1}}, _GIVEN),
    "_placed_rows_of_fours": ({0: {0, 1}, 1: {1}}, _GIVEN),
    "_padded": ({0: {0, 1}}, _GIVEN),
    "_padded_rows": ({0: {0, 1}}, _GIVEN),
    "_padded_columns": ({0: {0, 1}}, _GIVEN),
    "of_first_columns": ({1: {1}}, _GIVEN),
    "OpenCLElemwise": ({0: {0, 1}}, "nothing is launched for no elements"),
    "OpenCLJoin": ({2: {1}}, "nothing is launched for no elements"),
}
_POOLING = {
    "OpenCLPool",
    "OpenCLMaxPoolRop",
    "OpenCLDownsampleFactorMaxGradGrad",
    "OpenCLMaxPoolGrad",
    "OpenCLAveragePoolGrad",
}


def op_name(case: Case) -> str:
    """Return the class of a case's op."""
    return re.match(r"\w+", str(case)).group()


def may_pin(case: Case) -> dict[int, set[int]]:
    """Return which axes of its inputs a case's op can pin."""
    if op_name(case) not in _POOLING:
        return PINNED.get(op_name(case), ({}, ""))[0]
    # Pooling pins the sizes of images, and not the lengths of leading axes.
    shapes = [x.shape for x in case.arrays]
    return {place: set(range(len(shape) - case.op.ndim, len(shape))) for place, shape in enumerate(shapes)}


def function_of(case: Case) -> tuple[theano.compile.Function, list[np.ndarray]]:
    """Return a function that computes a case's op without rewriting it, and the function's arguments."""
    dtype = next((x.dtype(0) for x in case.arrays), "float32")
    inputs, arguments, given = [], [], []
    for x in case.inputs:
        if isinstance(x, Given):
            variable, value = OpenCLArrayType(x.dtype(0), [n == 1 for n in x.shape], "dev0")(), x.value(0)
        elif isinstance(x, np.ndarray) and op_name(case) in INDEXED_BY_ARGUMENTS:
            variable, value = tt.TensorType(x.dtype, [False] * x.ndim)(), x
        else:
            given.append(constant(np.asarray(x.value, dtype)) if isinstance(x, Number) else x)
            continue
        variable.name = f"x{len(inputs)}"
        given.append(variable)
        inputs.append(theano.In(variable, mutable=True))
        arguments.append(value)
    mode = theano.Mode(linker=theano.config.linker, optimizer=None)
    return theano.function(inputs, case.op(*given), mode=mode, accept_inplace=True), arguments


#: Each case has the mark `thorough` for one kind of device: alternately for processors and for GPUs.
CASES_BY_KIND = [
    pytest.param(case, kind, id=f"{case}-{kind}", marks=[pytest.mark.thorough] * ((number + place) % 2))
    for number, case in enumerate(CASES)
    for place, kind in enumerate(["cpu", "gpu"])
]


@pytest.mark.parametrize("case, device_kind", CASES_BY_KIND)
def test_lengths_that_an_op_pins(tmp_path, case, device_kind):
    function, arguments = function_of(case)
    if getattr(function.maker.fgraph.outputs[0].owner.op, "destroy_map", None):
        # The op writes into the caller's array, like an in-place op of a user.
        with pytest.raises(Untraceable, match="overwrites the caller's argument"):
            export(function, tmp_path / "f.optdb", [arguments], [device_kind])
        return
    [report] = export(function, tmp_path / "f.optdb", [arguments], [device_kind])
    if op_name(case) in FIXED:
        assert report.fixed or report.pinned, "it holds for more shapes by now: take it out of the table"
        return
    assert report.fixed is None
    allowed = may_pin(case)
    for place, axis in re.findall(r"\bx(\d+)\.shape\[(\d+)\]", " ".join(report.pinned)):
        assert int(axis) in allowed.get(int(place), set()), report.pinned


def test_the_tables_name_ops_that_there_are():
    there = {op_name(case) for case in CASES}
    assert {*INDEXED_BY_ARGUMENTS, *FIXED, *PINNED, *_POOLING} <= there
