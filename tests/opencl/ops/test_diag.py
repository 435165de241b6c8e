"""Lifted ops that take or make diagonals agree with the host."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import nlinalg

from optdb.opencl.ops.memory import OpenCLAllocDiag, OpenCLExtractDiag, OpenCLFillDiagonal, OpenCLFillDiagonalOffset
from tests.opencl.lifted import both, lifted_function

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.uniform(-4, 4, shape).astype("float32")


def compare(inputs, outputs, values, rtol):
    """Compare with the host; return the classes of the device ops."""
    got, want, ops = both(inputs, outputs, values)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=rtol)
    return ops


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_diagonals_along_any_axes(axes):
    x = tt.ftensor3()
    outputs = [tt.ExtractDiag(1, *axes)(x), tt.AllocDiag(-1, *axes)(x[0])]
    ops = compare([x], outputs, [numbers(3, 4, 5)], rtol=0)
    assert {OpenCLExtractDiag, OpenCLAllocDiag} <= set(ops)


def test_diagonals_are_lifted_with_their_gradients():
    x, v = tt.fmatrix(), tt.fvector()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        around = nlinalg.alloc_diag(v)
    outputs = [
        tt.diag(x, 1),
        tt.diag(v, -1),
        around * 2,
        theano.grad((tt.diag(x, 1) ** 2).sum(), x),
        theano.grad((tt.diag(v) * x).sum(), v),
        nlinalg.trace(x),
    ]
    ops = compare([x, v], outputs, [numbers(4, 4), numbers(4)], rtol=1e-6)
    assert {OpenCLExtractDiag, OpenCLAllocDiag} <= set(ops)
    assert not {"ExtractDiag", "AllocDiag"} & {op.__name__ for op in ops}


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (4, 1), (3, 3, 3), (0, 2)])
def test_diagonals_are_filled(shape):
    x, v = tt.TensorType("float32", (False,) * len(shape))(), tt.fscalar()
    outputs = [tt.extra_ops.fill_diagonal(x, v), tt.extra_ops.fill_diagonal(x, 7)]
    if len(shape) == 2:
        outputs += [tt.extra_ops.fill_diagonal_offset(x, v, offset) for offset in (0, 1, -1, 4, -4, 6)]
        outputs.append(theano.grad((outputs[0] ** 2).sum(), x))
    # A device may compute a product and a sum with one rounding, where the host rounds twice.
    ops = compare([x, v], outputs, [numbers(*shape), np.float32(3)], rtol=2e-7)
    assert OpenCLFillDiagonal in ops and (OpenCLFillDiagonalOffset in ops) == (len(shape) == 2)
    assert not {op.__name__ for op in ops} & {"FillDiagonal", "FillDiagonalOffset"}


def test_a_diagonal_of_unequal_lengths_is_refused():
    x = tt.ftensor3()
    f = lifted_function([x], [tt.extra_ops.fill_diagonal(x, 1)])
    with pytest.raises(ValueError, match="equal length"):
        f(numbers(2, 3, 2))
