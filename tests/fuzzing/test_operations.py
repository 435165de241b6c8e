"""Random functions reach the code that they are meant to test."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from fuzzing.operations import OPERATIONS
from fuzzing.profiles import replace_options, replace_profile
from optdb.codegen.gemm import warpgroups
from optdb.opencl import contexts
from optdb.opencl.ops.blas import OpenCLBiasedDot22
from optdb.opencl.ops.parts import OpenCLPad
from optdb.opencl.registry import context_of
from tests.codegen.computed import note_products

KERNELS = [("gpu", "a small product"), ("copying gpu", "a product by copied tiles")]


@pytest.mark.usefixtures("own_profile")
@pytest.mark.parametrize(("kernels", "name"), KERNELS)
@pytest.mark.parametrize("turned", OPERATIONS["product_of_fours"].params)
def test_a_product_of_fours(monkeypatch, turned, kernels, name):
    """A GPU reads four numbers at a time, or copies them asynchronously, wherever it can."""
    replace_options(quad_tiles="all")
    replace_profile(kernels=kernels)
    x = tt.fmatrix("x")
    with theano.configparser.change_flags(cxx=""), contexts.as_default(context_of()):
        product = OPERATIONS["product_of_fours"].build(x, turned)
        expected = theano.function([x], product, mode=theano.Mode("py", None))
        function = theano.function([x], product, mode=theano.Mode("vm", "fast_run").including("opencl"))
    ops = {type(node.op) for node in function.maker.fgraph.apply_nodes}
    assert {OpenCLBiasedDot22, OpenCLPad} <= ops
    computed = note_products(monkeypatch)
    value = np.random.RandomState(0).randint(-2, 3, (3, 2)).astype("float32")
    np.testing.assert_array_equal(function(value), expected(value))
    # A small product reads four terms of the left matrix at once only if they are contiguous.
    names = [name] if name != "a small product" or turned in ("none", "right") else []
    assert [product.name for product in computed] == names


@pytest.mark.usefixtures("own_profile")
@pytest.mark.parametrize("precision", ["highest", "default"])
def test_a_product_by_warpgroups(monkeypatch, precision):
    replace_profile(kernels="warpgroup gpu")
    x, planned = tt.fmatrix("x"), []
    plan = warpgroups.plan
    monkeypatch.setattr(warpgroups, "plan", lambda *args: planned.append(plan(*args)) or planned[-1])
    flags = {"cxx": "", "optdb.matmul_precision": precision}
    with theano.configparser.change_flags(**flags), contexts.as_default(context_of()):
        function = theano.function([x], x.dot(x.T), mode=theano.Mode("vm", "fast_run").including("opencl"))
    value = np.random.RandomState(0).randint(-2, 3, (3, 2)).astype("float32")
    np.testing.assert_array_equal(function(value), value.dot(value.T))
    assert len(planned) == (precision == "default")
