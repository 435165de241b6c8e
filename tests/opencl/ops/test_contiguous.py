from __future__ import annotations

import numpy as np
import pytest
import theano

from optdb.opencl import HostFromOpenCL, OpenCLArrayType
from optdb.opencl.ops.contiguous import OpenCLContiguous, opencl_contiguous

MODE = theano.Mode("py", "fast_compile")


@pytest.fixture(scope="module")
def x():
    return OpenCLArrayType("float32", (False, False), context_name="dev0")("x")


def test_what_is_in_c_order_is_not_copied(x):
    f = theano.function([theano.In(x, borrow=True)], theano.Out(opencl_contiguous(x), borrow=True), mode=MODE)
    value = x.type.filter(np.eye(3, dtype="float32"))
    assert f(value).base_data is value.base_data


@pytest.mark.parametrize("view", [np.s_[:, ::2], np.s_[::-1], np.s_[:, 1:]], ids=str)
def test_views_become_contiguous(x, view):
    f = theano.function([x], opencl_contiguous(x), mode=MODE)
    value = np.arange(12, dtype="float32").reshape(3, 4)
    made = f(x.type.filter(value)[view])
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made.get(), value[view])


def test_once_is_enough(x):
    once = opencl_contiguous(x)
    assert opencl_contiguous(once) is once
    assert OpenCLContiguous() == OpenCLContiguous()


def test_the_gradient_goes_through(x):
    total = HostFromOpenCL()(opencl_contiguous(x)).sum()
    f = theano.function([x], theano.grad(total, x), mode=MODE)
    np.testing.assert_array_equal(np.asarray(f(np.zeros((2, 3), "float32"))), np.ones((2, 3)))
