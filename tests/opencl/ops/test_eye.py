from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.null_type import NullType

from optdb.opencl import HostFromOpenCL, OpenCLArrayType, contexts
from optdb.opencl.ops.memory import OpenCLEye

MODE = theano.Mode("py", "fast_compile")


@pytest.fixture(scope="module", autouse=True)
def dev():
    contexts.register("eye_dev", "opencl")
    yield
    contexts.forget("eye_dev")


def compiled(dtype):
    n, m, k = tt.lscalars("n", "m", "k")
    return theano.function([n, m, k], OpenCLEye(dtype, "eye_dev")(n, m, k), mode=MODE)


def test_what_was_returned_stays_as_it_was():
    f = compiled("float32")
    first = f(3, 3, 0)
    f(3, 3, 1)
    np.testing.assert_array_equal(first.get(), np.eye(3))


def test_memory_used_again_is_cleared():
    n, m, k = tt.lscalars("n", "m", "k")
    keeping = theano.Mode(theano.gof.PerformLinker(allow_gc=False), "fast_compile")
    f = theano.function([n, m, k], theano.Out(OpenCLEye("float32", "eye_dev")(n, m, k), borrow=True), mode=keeping)
    first = f(3, 3, 0)
    assert f(3, 3, 1).base_data is first.base_data
    np.testing.assert_array_equal(f(3, 3, 1).get(), np.eye(3, k=1))
    np.testing.assert_array_equal(f(2, 3, 1).get(), np.eye(2, 3, 1))


@pytest.mark.parametrize("linker", ["py", "c|py", "vm", "cvm"])
def test_every_linker(linker):
    mode = theano.Mode(linker, "fast_compile")
    f = theano.function([], OpenCLEye("float16", "eye_dev")(2, 3, 1), mode=mode)
    np.testing.assert_array_equal(f().get(), np.eye(2, 3, 1))


def test_perform_without_a_thunk():
    node = OpenCLEye("int32", "eye_dev").make_node(2, 3, 1)
    out = [None]
    node.op.perform(node, [np.int64(2), np.int64(3), np.int64(1)], [out])
    np.testing.assert_array_equal(out[0].get(), np.eye(2, 3, 1))


def test_the_type_says_where_it_is():
    out = OpenCLEye("float32", "eye_dev")(2, 3)
    assert out.type == OpenCLArrayType("float32", (False, False), context_name="eye_dev")
    assert OpenCLEye(context_name="eye_dev").dtype == theano.config.floatX


def test_ops_are_equal_by_their_props():
    assert OpenCLEye("float32", "eye_dev") == OpenCLEye(np.float32, "eye_dev")
    assert hash(OpenCLEye("float32", "eye_dev")) == hash(OpenCLEye("float32", "eye_dev"))
    assert OpenCLEye("float32", "eye_dev") != OpenCLEye("float64", "eye_dev")
    assert OpenCLEye("float32", "eye_dev") != OpenCLEye("float32", None)
    op = OpenCLEye("float32", "eye_dev")
    assert pickle.loads(pickle.dumps(op)) == op


def test_the_shape_needs_no_matrix():
    n, m, k = tt.lscalars("n", "m", "k")
    shape = HostFromOpenCL()(OpenCLEye("float32", "eye_dev")(n, m, k)).shape
    f = theano.function([n, m, k], shape, mode=theano.Mode("py", "fast_run"), on_unused_input="ignore")
    assert not any(isinstance(node.op, OpenCLEye) for node in f.maker.fgraph.apply_nodes)
    np.testing.assert_array_equal(f(4, 7, 1), [4, 7])


def test_there_is_no_gradient_by_sizes():
    op = OpenCLEye("float32", "eye_dev")
    node = op.make_node(2, 3, 0)
    gradients = op.grad(node.inputs, node.outputs)
    assert [type(gradient.type) for gradient in gradients] == [NullType] * 3
    assert "sizes must be integers" in gradients[0].type.why_null


@pytest.mark.parametrize(("n", "says"), [(1.5, "n of an eye must be an integer"), ([1], "integer")])
def test_sizes_have_to_be_whole_numbers(n, says):
    with pytest.raises(TypeError, match=says):
        OpenCLEye("float32", "eye_dev")(n, 3)


def test_negative_sizes():
    with pytest.raises(ValueError, match="negative dimensions are not allowed"):
        compiled("float32")(-1, 3, 0)
