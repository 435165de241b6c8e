"""Elementwise consumers of reductions are fused as their epilogues: no separate kernel computes them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.scalar import basic as scalar

import optdb
from optdb.codegen.scalars.program import Number, ProgramBuilder
from optdb.opencl import OpenCLArrayType
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import program_of
from tests.opencl.layouts import device_array, run, variable

RNG = np.random.default_rng(17)
A = RNG.uniform(0.5, 2, (3, 17, 40)).astype("float32")


def there(*arrays):
    return [theano.shared(np.asarray(a), target="dev0") for a in arrays]


def nodes_of(function, kind):
    return [node for node in function.maker.fgraph.toposort() if isinstance(node.op, kind)]


def lifted(outputs, updates=None, linker="py"):
    mode = theano.Mode(linker, "fast_run").including("opencl")
    return theano.function([], [out.transfer("dev0") for out in outputs], updates=updates, mode=mode)


def computed(outputs, want, epilogues=1, elemwise=0, rtol=1e-5):
    """Check values, the number of reductions with an epilogue, and the number of elementwise kernels."""
    f = lifted(outputs)
    for got, value in zip(f(), want, strict=True):
        assert got.shape == np.shape(value)
        np.testing.assert_allclose(np.asarray(got), value, rtol=rtol)
    found = [node for node in nodes_of(f, OpenCLCAReduce) if node.op.post_scalar_op is not None]
    assert len(found) == epilogues and len(nodes_of(f, OpenCLElemwise)) == elemwise, f.maker.fgraph.toposort()
    return found


def program(dtypes, *steps):
    """Return a program that applies ops one after the other; each step is an op and the slots of its operands."""
    builder = ProgramBuilder(dtypes)
    made = list(enumerate(dtypes))
    for op, slots in steps:
        inputs = [(slot, slot.dtype) if isinstance(slot, Number) else made[slot] for slot in slots]
        step = program_of(op, [dtype for _, dtype in inputs])
        made += zip(builder.inline(step, [slot for slot, _ in inputs]), step.out_dtypes)
    return builder.build([slot for slot, _ in made[len(dtypes) :]])


@pytest.mark.slow_cases("cpu-None", "cpu-0", "cpu-axis2", "gpu-None", "gpu-0", "gpu-axis2")
@pytest.mark.parametrize("axis", [None, 0, (0, 2), 1, 2])
def test_means_are_one_kernel(each_device_kind, axis):
    (x,) = there(A)
    computed([x.mean(axis=axis)], [A.mean(axis=axis)])
    (node,) = computed([tt.sqr(x).mean(axis=axis) + np.float32(1)], [np.square(A).mean(axis=axis) + 1])
    assert node.op.pre_scalar_op is not None


@pytest.mark.parametrize("axis", [0, (0, 2), 1, 2])
def test_other_arrays_come_in_behind(each_device_kind, axis):
    x, s = there(A, np.float32(3))
    fold = A.sum(axis=axis)
    b, c = RNG.uniform(1, 2, fold.shape).astype("float16"), RNG.uniform(1, 2, fold.shape[::-1])
    y, z = there(b, c)
    (node,) = computed([(x.sum(axis=axis) * s + y[::-1]) / z.T], [(fold * 3 + b[::-1]) / c.T])
    assert len(node.inputs) == 4 and node.outputs[0].dtype == "float64"


@pytest.mark.slow
def test_what_is_dear_is_computed_behind_one_result_only():
    (x,) = there(A)
    computed([-tt.log(x.sum())], [-np.log(A.sum())])
    computed([-tt.log(x.sum(axis=1))], [-np.log(A.sum(axis=1))], epilogues=0, elemwise=1)
    b = np.float32([0.5])
    (y,) = there(b)
    y = tt.addbroadcast(y, 0)
    computed([tt.nnet.sigmoid(x.mean().dimshuffle("x") + y)], [1 / (1 + np.exp(-A.mean() - b))])


@pytest.mark.slow
def test_several_outputs_and_several_reductions(each_device_kind):
    (x,) = there(A)
    s, m = x.sum(axis=0), x.max(axis=0)
    t = s / m
    want = A.sum(axis=0) / A.max(axis=0)
    (node,) = computed([t, t * t - np.float32(2)], [want, want * want - 2], rtol=1e-4)
    assert len(node.outputs) == 2
    got = tt.maximum(x.sum(axis=0), x.prod(axis=0))
    computed([got], [np.maximum(A.sum(axis=0), A.prod(axis=0))])


@pytest.mark.parametrize("shape, axis", [((200_003,), 0), ((3, 50_001), 1), ((50_001, 3), 0), ((300, 2, 200), (0, 2))])
def test_only_whole_results_go_on(each_device_kind, shape, axis):
    a = RNG.uniform(size=shape).astype("float32")
    fold = a.sum(axis=axis)
    b = RNG.uniform(size=fold.shape).astype("float32")
    x, y = there(a, b)
    q = x.sum(axis=axis) * np.float32(2)
    want = [fold * 2 + b, fold * 2 - b]
    computed([q + y, q - y], want)


@pytest.mark.slow
def test_dimshuffles_are_seen_through(each_device_kind):
    b, c = RNG.uniform(1, 2, (3, 1, 40)).astype("float32"), RNG.uniform(1, 2, (40, 3)).astype("float32")
    x, y, z = there(A, b, c)
    kept = x.sum(axis=1, keepdims=True) * np.float32(2) + tt.addbroadcast(y, 1)
    computed([kept], [A.sum(axis=1, keepdims=True) * 2 + b])
    computed([x.sum(axis=1).T / z], [A.sum(axis=1).T / c])


def test_what_is_wanted_elsewhere_or_larger_stays():
    (x,) = there(A)
    s = x.sum(axis=0)
    computed([s, s * np.float32(2)], [A.sum(axis=0), A.sum(axis=0) * 2], epilogues=0, elemwise=1)
    computed([x / x.sum(axis=0)], [A / A.sum(axis=0)], epilogues=0, elemwise=1)
    t = x.sum(axis=0)[:17, :17]
    computed([t + t.T], [A.sum(axis=0)[:, :17] + A.sum(axis=0)[:, :17].T], epilogues=0, elemwise=1)


def test_updates_are_written_over_the_present_values():
    x, w = there(A, A[0])
    f = lifted([], updates=[(w, w - np.float32(0.1) * x.sum(axis=0))])
    (node,) = nodes_of(f, OpenCLElemwise)
    assert node.op.inplace_pattern
    f()
    np.testing.assert_allclose(w.get_value(), A[0] - 0.1 * A.sum(axis=0), rtol=1e-5)


@pytest.mark.pairwise
@pytest.mark.slow_cases("cpu-0-shape0", "cpu-None-shape0", "gpu-0-shape0", "gpu-None-shape0")
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_of_nothing(each_device_kind, shape, axis):
    a = np.ones(shape, "float32")
    fold = a.sum(axis=axis)
    x, y = there(a, np.full(np.shape(fold), 3, "float32"))
    computed([x.sum(axis=axis) * y + np.float32(2)], [fold * 3 + 2])
    computed([x.prod(axis=axis) * y + np.float32(2)], [a.prod(axis=axis) * 3 + 2])
    if 0 in shape and np.size(fold):
        with pytest.raises(ValueError, match="no elements to reduce"):
            lifted([x.max(axis=axis) * y])()


ADD, MUL = scalar.add, scalar.mul


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64", "complex64"])
def test_dtypes(each_device_kind, dtype):
    value = np.array([[3, 1, 0], [5, 7, 1]]).astype(dtype)
    node = OpenCLCAReduce(scalar.add, 1)(variable(value)).owner
    out = node.outputs[0].type.dtype
    post = program([out, dtype], (ADD, (0, 1)), (scalar.eq, (0, 1)))
    node = OpenCLCAReduce(scalar.add, 1, post_scalar_op=post).make_node(variable(value), variable(value[:, 0]))
    total, same = run(node, [device_array(value, [1, -1]), device_array(value[:, 0], [-1])])
    want = value.sum(axis=1, dtype=out)
    np.testing.assert_array_equal(total, want + value[:, 0])
    np.testing.assert_array_equal(same, want == value[:, 0])
    assert total.dtype == node.outputs[0].type.dtype and same.dtype == bool


def test_shapes_are_checked_and_inferred():
    post = program(["float32", "float32"], (ADD, (0, 1)))
    op = OpenCLCAReduce(scalar.add, 0, post_scalar_op=post)
    x, b = OpenCLArrayType("float32", (False, False), "dev0")(), OpenCLArrayType("float32", (False,), "dev0")()
    f = theano.function([x, b], op(x, b).shape, mode=theano.Mode("py", "fast_run"))
    assert not nodes_of(f, OpenCLCAReduce)
    assert f(device_array(A[0]), device_array(A[0, 0])).tolist() == [40]
    with pytest.raises(ValueError, match="for a result of"):
        run(op(x, b).owner, [device_array(A[0]), device_array(A[0, 0, :1])])
    row = OpenCLArrayType("float32", (True, True), "dev0")()
    with pytest.raises(TypeError, match="would broadcast the result"):
        op(row, b)
    with pytest.raises(theano.gradient.NullTypeGradError):
        theano.grad(theano.tensor.as_tensor_variable(op(x, b).transfer("cpu")).sum(), x)


def test_an_op_is_pickled_equal_and_says_what_it_does():
    def made(number):
        post = program(["float32"], (MUL, (0, Number.of(number, "float32"))))
        return OpenCLCAReduce(scalar.add, 0, post_scalar_op=post)

    again = pickle.loads(pickle.dumps(made(2)))
    assert again == made(2) and hash(again) == hash(made(2)) and again != made(3)
    assert again != OpenCLCAReduce(scalar.add, 0) and "then Program{mul}" in str(again)


def test_plans_repeat_them():
    a = RNG.uniform(size=(50_001, 3)).astype("float32")
    x, y = there(a, np.float32([1, 2, 3]))
    mode = theano.Mode("cvm").including("opencl")
    f = theano.function([], (x.mean(axis=0) * y).transfer("dev0"), mode=optdb.mode(mode), updates=[(x, x + 1)])
    assert not [node for node in nodes_of(f, OpenCLElemwise) if len(node.inputs) > 1]
    for i in range(4):
        np.testing.assert_allclose(np.asarray(f()), (a + i).mean(axis=0, dtype="float64") * [1, 2, 3], rtol=1e-5)
    assert f.fn.plans
