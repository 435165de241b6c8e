"""Random functions reach what they are to reach."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from fuzzing.operations import OPERATIONS
from fuzzing.profiles import replace_profile
from optdb.codegen.gemm import quad_tiles
from optdb.opencl import contexts, get_context
from optdb.opencl.ops.blas import OpenCLBiasedDot22
from optdb.opencl.ops.parts import OpenCLPad
from optdb.opencl.registry import context_of


@pytest.fixture
def gpu(monkeypatch):
    """Let the device have a GPU's kernels, which read four numbers at a time wherever they can."""
    context = get_context(context_of())
    monkeypatch.setattr(context, "profile", context.profile)
    replace_profile(kernels="gpu")
    monkeypatch.setattr(quad_tiles, "_classes", set())
    quad_tiles.take_all()


@pytest.mark.parametrize("turned", OPERATIONS["product_of_fours"].params)
def test_a_product_of_fours(monkeypatch, gpu, turned):
    x = tt.fmatrix("x")
    with theano.configparser.change_flags(cxx=""), contexts.as_default(context_of()):
        product = OPERATIONS["product_of_fours"].build(x, turned)
        expected = theano.function([x], product, mode=theano.Mode("py", None))
        function = theano.function([x], product, mode=theano.Mode("vm", "fast_run").including("opencl"))
    ops = {type(node.op) for node in function.maker.fgraph.apply_nodes}
    assert {OpenCLBiasedDot22, OpenCLPad} <= ops
    was_by_quads = []
    multiply = quad_tiles.multiply
    monkeypatch.setattr(quad_tiles, "multiply", lambda *args: was_by_quads.append(multiply(*args)) or was_by_quads[-1])
    value = np.random.RandomState(0).randint(-2, 3, (3, 2)).astype("float32")
    np.testing.assert_array_equal(function(value), expected(value))
    # Kernels read no left matrix by fours whose terms are not side by side.
    assert was_by_quads == [turned in ("none", "right")]
