"""The device computes special functions of half floats, and gradients.

``tests/codegen/scalars`` tests the values of special functions.
"""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.scalar import basic_scipy

from optdb.opencl.ops.elemwise import OpenCLElemwise
from tests.codegen.scalars.test_special import CASES
from tests.opencl.lifted import both, lifted_function


@pytest.mark.parametrize("name", ["Psi", "Erfcinv", "J1", "GammaIncC", "Chi2SF"])
def test_float16_is_computed_wide(name):
    ((_, _, arrays, *_),) = [case for case in CASES if case[0] == name]
    inputs = [tt.TensorType("float16", (False,))() for _ in arrays]
    values = [np.clip(abs(x[20:120]), 0.1, 30).astype("float16") for x in arrays]
    if name == "Erfcinv":
        values = [x / 32 for x in values]
    out = tt.Elemwise(getattr(basic_scipy, name.lower()))(*inputs)
    (got,), (want,), ops = both(inputs, out, values)
    assert got.dtype == out.dtype and all(op.__name__.startswith("OpenCL") for op in ops)
    with np.errstate(all="ignore"):
        want = np.asarray(want, got.dtype)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-6)


@pytest.mark.slow
def test_gradients_are_on_the_device():
    x, v = tt.dvector(), tt.dvector()
    values = np.linspace(0.1, 0.9, 7), np.linspace(2, 4, 7)
    losses = [
        tt.gammaln(v),
        tt.psi(v),
        tt.erfinv(x),
        tt.erfcinv(x),
        tt.erfcx(x),
        tt.i0(v),
        tt.i1(v),
        tt.j0(v),
        tt.j1(v),
    ]
    outputs = [theano.grad(loss.sum(), x if loss.owner.inputs[0] is x else v) for loss in losses]
    got, want, ops = both([x, v], outputs, values)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    assert [op for op in ops if op is OpenCLElemwise]
    f = lifted_function([v], [theano.grad(loss.sum(), v) for loss in (tt.i1(v), tt.j1(v), tt.gammaln(v))])
    on_host = {node.op.scalar_op for node in f.maker.fgraph.apply_nodes if isinstance(node.op, tt.Elemwise)}
    assert not on_host & {basic_scipy.iv, basic_scipy.jv, basic_scipy.psi}
