"""Elementwise ops of the device become few kernels, which compute the same numbers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.ifelse import ifelse

import optdb
from optdb.codegen.scalars.program import Number, ProgramBuilder, Scalar, ScalarProgram
from optdb.opencl import OpenCLArrayType, get_context
from optdb.opencl.fusing.groups import MOST_STEPS, takes_arguments
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalar_programs import program_of
from optdb.opencl.transfers import HostFromOpenCL, OpenCLFromHost
from optdb.runtime.arrays import from_host
from profiles import models
from tests.effort import examples

RNG = np.random.default_rng(3)


def mode(*without: str):
    return theano.Mode("py", "fast_run").including("opencl").excluding(*without)


def nodes_of(function, kind=OpenCLElemwise):
    return [node for node in function.maker.fgraph.toposort() if isinstance(node.op, kind)]


def there(*arrays):
    """Return variables on the device, so that lifting needs no transfers and is always worthwhile."""
    return [theano.shared(np.asarray(a), target="dev0") for a in arrays]


def kernels(outputs, want, count, updates=None, rtol=1e-6):
    """Check values, and the number of elementwise kernels that compute them; return the kernels."""
    f = theano.function([], [out.transfer("dev0") for out in outputs], mode=mode(), updates=updates)
    for got, value in zip(f(), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=rtol)
    found = nodes_of(f)
    assert len(found) == count, found
    return found


A = RNG.uniform(0.5, 2, (3, 4)).astype("float32")
B = RNG.uniform(0.5, 2, (3, 4)).astype("float32")
ROW, COLUMN = A[:1].copy(), A[:, 0].copy()


def test_a_chain_becomes_one_kernel_with_constants_in_its_code():
    x, y = there(A, B)
    two = np.float32(2)
    (node,) = kernels([tt.exp(x * two) + y / two], [np.exp(A * 2) + B / 2], 1)
    assert len(node.inputs) == 2 and isinstance(node.op.scalar_op, ScalarProgram)


@pytest.mark.parametrize("patterns", [((False, False), (True, False)), ((True, False), (False, False))])
def test_what_the_host_fused_into_a_large_op_becomes_kernels_of_limited_size(patterns):
    i, j = theano.scalar.float32("i"), theano.scalar.float32("j")
    out, expected = i, (values := [A if not pattern[0] else ROW for pattern in patterns])[0]
    for _ in range(60):
        out = theano.scalar.tanh(out * np.float32(1.5)) + j
        expected = np.tanh(expected * np.float32(1.5)) + values[1]
    x, y = (tt.TensorType("float32", pattern)() for pattern in patterns)
    fused = tt.Elemwise(theano.scalar.Composite([i, j], [out]))(x, y)
    f = theano.function([x, y], fused.transfer("dev0"), mode=mode())
    np.testing.assert_allclose(np.asarray(f(*values)), expected, rtol=1e-5)
    programs = [node.op.scalar_op for node in nodes_of(f)]
    assert len(programs) > 2
    assert all(len(program.steps) <= MOST_STEPS for program in programs)


def test_what_is_wanted_elsewhere_is_one_more_output():
    x, y = there(A, B)
    s = tt.exp(x) + y
    (node,) = kernels([s, tt.sqrt(s), s * y], [np.exp(A) + B, np.sqrt(np.exp(A) + B), (np.exp(A) + B) * B], 1)
    assert len(node.outputs) == 3


def test_all_updates_of_an_optimizer_are_one_kernel_that_works_in_place(each_device_kind):
    w, m, v, g = there(A, 0 * A, 0 * A, B)
    m2, v2 = m * np.float32(0.9) + g * np.float32(0.1), v * np.float32(0.99) + tt.sqr(g) * np.float32(0.01)
    w2 = w - np.float32(0.1) * m2 / (tt.sqrt(v2) + np.float32(1e-8))
    f = theano.function([], [], updates=[(m, m2), (v, v2), (w, w2)], mode=mode())
    (node,) = nodes_of(f)
    assert sorted(node.op.inplace_pattern) == [0, 1, 2]
    buffers = [s.get_value(borrow=True, return_internal_type=True).base_data for s in (w, m, v)]
    f()
    np.testing.assert_allclose(w.get_value(), A - 0.1 * 0.1 * B / (np.sqrt(0.01 * B**2) + 1e-8), rtol=1e-5)
    np.testing.assert_allclose(m.get_value(), 0.1 * B, rtol=1e-6)
    assert buffers == [s.get_value(borrow=True, return_internal_type=True).base_data for s in (w, m, v)]


def test_what_is_seen_in_two_ways_is_not_overwritten():
    (w,) = there(A[:, :3].copy())
    f = theano.function([], [], updates=[(w, w * np.float32(2) + tt.tanh(w.T))], mode=mode())
    (node,) = nodes_of(f)
    f()
    np.testing.assert_allclose(w.get_value(), 2 * A[:, :3] + np.tanh(A[:, :3].T), rtol=1e-5)
    assert len(node.inputs) == 2 and not node.op.inplace_pattern


def test_no_group_waits_for_itself():
    x, y = there(A, B)
    e = tt.exp(x)
    got = tt.dot(e, y.T).sum() + e  # e is an operand of the product and also of the sum that follows it
    kernels([got], [(np.exp(A) @ B.T).sum() + np.exp(A)], 2, rtol=1e-5)
    p, q = tt.exp(x), tt.exp(y)
    cross = [p + tt.dot(q, q.T).sum(), q + tt.dot(p, p.T).sum()]
    want = [np.exp(A) + (np.exp(B) @ np.exp(B).T).sum(), np.exp(B) + (np.exp(A) @ np.exp(A).T).sum()]
    f = theano.function([], [c.transfer("dev0") for c in cross], mode=mode())
    for a, b in zip(f(), want):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5)


def test_dimshuffles_are_seen_through(each_device_kind):
    x, y, c = there(A, B.T.copy(), COLUMN)
    (node,) = kernels(
        [(y * np.float32(3)).T + x * (c + np.float32(1)).dimshuffle(0, "x")], [3 * B + A * (COLUMN + 1)[:, None]], 1
    )
    assert all(isinstance(x.owner.op, OpenCLDimShuffle) for x in node.inputs if x.owner is not None)
    symmetric = tt.exp(x[:3, :3]) + tt.exp(x[:3, :3]).T  # exp is computed once, for both operands
    square = np.exp(A[:3, :3])
    kernels([symmetric], [square + square.T], 2)


def test_what_is_expensive_is_not_computed_for_more_elements():
    x, row = there(A, ROW)
    row = tt.addbroadcast(row, 0)
    kernels([x + tt.tanh(row)], [A + np.tanh(ROW)], 2)
    kernels([x + row * row], [A + ROW * ROW], 1)
    (s,) = there(np.float32(0.5))
    (node,) = kernels([x * tt.exp(s)], [A * np.exp(np.float32(0.5))], 1)  # ahead of all elements
    assert len(node.inputs) == 2


def test_a_kernel_has_no_more_arguments_than_the_device_takes():
    values = [A + i for i in range(40)]
    total = sum(tt.sqr(x) for x in there(*values))
    f = theano.function([], total.transfer("dev0"), mode=mode())
    np.testing.assert_allclose(np.asarray(f()), sum(a**2 for a in values), rtol=1e-5)
    for node in nodes_of(f):
        n = len(node.inputs) + len(node.outputs)
        assert n <= 3 or takes_arguments(node.outputs[0], n) or not isinstance(node.op.scalar_op, ScalarProgram)


def test_half_floats_and_casts(each_device_kind):
    h, i = there(A.astype("float16"), np.arange(12).reshape(3, 4))
    out = tt.cast(tt.exp(h) * i, "float16")
    want = np.exp(A.astype("float16").astype("float64")) * np.arange(12).reshape(3, 4)
    kernels([out], [want], 1, rtol=2e-3)


@pytest.mark.parametrize("without", [(), ("fusion",)])
def test_it_is_there_where_the_mode_says(without):
    x, y = there(A, B)
    f = theano.function([], (tt.exp(x) + y * x).transfer("dev0"), mode=mode(*without))
    assert (len(nodes_of(f)) == 1) == (not without)


def test_an_op_is_pickled_equal_and_made_once():
    x, y = there(A, B)
    with optdb.cache.install():
        f = theano.function([], [(tt.exp(x) + y).transfer("dev0"), (tt.exp(y) + x).transfer("dev0")], mode=mode())
    first = nodes_of(f)[0].op
    again = pickle.loads(pickle.dumps(first))
    assert again == first and hash(again) == hash(first)
    assert [np.asarray(v).shape for v in pickle.loads(pickle.dumps(f))()] == [A.shape, A.shape]


def test_what_fusion_made_has_no_gradient_and_says_so():
    (x,) = there(A)
    (node,) = kernels([tt.exp(x) * np.float32(2)], [np.exp(A) * 2], 1)
    y = node.op(x)
    with pytest.raises(theano.gradient.NullTypeGradError, match="the op is the result of fusion"):
        theano.grad(tt.as_tensor_variable(y.transfer("cpu")).sum(), x)
    with pytest.raises(NotImplementedError, match="Call Rop before compiling"):
        node.op.R_op([x], [x])


def test_programs_compare_to_the_last_bit():
    def adding(number):
        builder = ProgramBuilder(["float32"])
        return builder.build([builder.apply(Scalar("Add", "float32"), [0, Number.of(number, "float32")])])

    assert adding(np.nan) == adding(np.nan) and adding(0.0) != adding(-0.0)
    opened, closed = theano.scalar.InRange(True, True), theano.scalar.InRange(False, False)
    assert opened == closed  # for the host
    first, second = [program_of(op, ["float32"] * 3) for op in (opened, closed)]
    assert first != second and hash(first) != hash(second)
    builder = ProgramBuilder(["float32"])
    assert builder.inline(first, [0, 0, 0]) != builder.inline(second, [0, 0, 0])
    assert program_of(adding(2), ["float32"]) == adding(2) and "add" in str(adding(2))
    with pytest.raises(TypeError, match="was compiled for"):
        program_of(adding(2), ["float64"])


def test_ranges_with_open_and_with_closed_ends_have_kernels_of_their_own():
    """Ops for ranges with open and with closed ends need different kernels, although Theano treats the ops as equal."""
    (x,) = there(np.float32([0, 0.5, 1]))
    for opened, want in ((True, [0, 1, 0]), (False, [1, 1, 1])):
        in_range = tt.Elemwise(theano.scalar.InRange(opened, opened))(x, np.float32(0), np.float32(1))
        f = theano.function([], in_range.transfer("dev0"), mode=mode())
        assert nodes_of(f) and np.asarray(f()).tolist() == want


UNARY = [tt.tanh, tt.sqr, tt.neg, lambda x: x * np.float32(0.5), lambda x: x.T.T, lambda x: tt.maximum(x, 0)]
BINARY = [tt.add, tt.sub, tt.mul, tt.maximum, lambda a, b: tt.switch(a > b, a, b)]
WAYS = [
    lambda x: x.T,
    lambda x: x.dimshuffle("x", 0, 1)[0],
    lambda x: x[::-1],
    lambda x: x[0].dimshuffle("x", 0) + tt.zeros_like(x),
    lambda x: x[:, 1].dimshuffle(0, "x") * np.float32(2),
    lambda x: tt.dot(x, x) * np.float32(0.1),
]
FOLDS = [
    lambda x: x.sum(axis=0, keepdims=True),
    lambda x: x.mean(axis=1, keepdims=True),
    lambda x: tt.sqrt(tt.sqr(x).sum()).dimshuffle("x", "x"),
    lambda x: x.max(axis=0).dimshuffle("x", 0),
]


@st.composite
def graphs(draw):
    """Draw a random graph over square matrices; return its variables, which are computed from earlier ones."""
    made = there(RNG.uniform(-1, 1, (5, 5)).astype("float32"), RNG.uniform(-1, 1, (5, 5)).astype("float32"))
    pick = st.sampled_from
    for _ in range(draw(st.integers(3, 14))):
        kind = draw(st.integers(0, 5))
        one, other = made[draw(st.integers(0, len(made) - 1))], made[-1]
        if kind < 2:
            made.append(draw(pick(UNARY))(one))
        elif kind < 4:
            made.append(draw(pick(BINARY))(one, other))
        elif kind == 4:
            made.append(draw(pick(WAYS))(one) - other)
        else:
            made.append(draw(pick(FOLDS))(one) + other)
    extra = [made[draw(st.integers(2, len(made) - 1))] for _ in range(draw(st.integers(0, 2)))]
    return [made[-1], *extra]


@pytest.mark.slow
@given(graphs())
@settings(max_examples=examples(25), deadline=None)
def test_values_of_random_graphs(outputs):
    plain = theano.function([], outputs, mode=theano.Mode("py", "fast_compile"))
    f = theano.function([], [out.transfer("dev0") for out in outputs], mode=mode())
    assert not nodes_of(f, HostFromOpenCL)
    for got, want in zip(f(), plain(), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)


@pytest.mark.thorough_cases("gru-sizes1")
@pytest.mark.slow
@pytest.mark.parametrize("name, sizes", [("mlp", {"depth": 1, "width": 6}), ("gru", {"steps": 3})])
def test_models_train_alike_with_fusion_and_without(name, sizes):
    if name not in models.known():
        name = "gru30"
    results = []
    for without in ((), ("fusion",)):
        model = models.build(name, **sizes)
        f = theano.function(model.inputs, model.outputs, updates=model.updates, mode=optdb.mode(mode(*without)))
        losses = [np.asarray(f(*model.data)[0]) for _ in range(2)]
        results.append((len(nodes_of(f)), losses + [np.asarray(w.get_value()) for w in model.updates]))
    (few, fused), (many, plain) = results
    assert few < many / 2
    for got, want in zip(fused, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


def test_transfers_are_left_alone():
    x = tt.fmatrix()
    f = theano.function([x], tt.exp(tt.dot(x, x.T)) * 2 + 1, mode=mode())
    np.testing.assert_allclose(f(A), 2 * np.exp(A @ A.T) + 1, rtol=1e-5)
    assert len(nodes_of(f, OpenCLFromHost)) == len(nodes_of(f, HostFromOpenCL)) == 1


def reductions(outputs, want, count=1, rtol=1e-5):
    """Check values, and that reductions compute their terms without separate kernels; return the reductions."""
    f = theano.function([], [out.transfer("dev0") for out in outputs], mode=mode())
    for got, value in zip(f(), want, strict=True):
        assert got.dtype == out_dtype(value)
        np.testing.assert_allclose(np.asarray(got), value, rtol=rtol)
    found = nodes_of(f, OpenCLCAReduce)
    assert len(found) == count and not nodes_of(f)
    return found


def out_dtype(value):
    return np.asarray(value).dtype


@pytest.mark.slow_cases("cpu-None", "gpu-None", "gpu-0", "gpu-axis2")
@pytest.mark.parametrize("axis", [None, 0, (0, 2), 1])
def test_reductions_compute_what_they_fold(each_device_kind, axis):
    a = RNG.uniform(-1, 1, (3, 17, 40)).astype("float32")
    x, y = there(a, a[:, :1].copy())
    y = tt.addbroadcast(y, 1)
    (node,) = reductions(
        [tt.sum(tt.exp(x) * y + np.float32(2), axis=axis)], [(np.exp(a) * a[:, :1] + 2).sum(axis=axis)]
    )
    assert len(node.inputs) == 2 and node.op.pre_scalar_op is not None
    reductions([tt.max(x * y, axis=axis)], [(a * a[:, :1]).max(axis=axis)])
    reductions([tt.any(tt.gt(x, y), axis=axis)], [(a > a[:, :1]).any(axis=axis)])


@pytest.mark.slow
def test_reductions_of_views_and_much(each_device_kind):
    a = RNG.uniform(0, 1, (300, 200)).astype("float32")
    x, s = there(a, np.float32(3))
    reductions([tt.sqr(x[::2, ::-1].T + s).sum(axis=0)], [np.square(a[::2, ::-1].T + 3).sum(axis=0)])
    reductions([tt.sqr(x.T).sum(), tt.sqr(x).sum(axis=0)], [np.square(a).sum(), np.square(a).sum(axis=0)], 2)
    h = tt.cast(x, "float16")
    reductions([(h * h).sum()], [np.float16(np.square(a.astype("float16").astype("float32")).sum())], rtol=1e-2)


def test_what_is_wanted_elsewhere_is_stored():
    x, y = there(A, B)
    z = tt.exp(x) * y
    f = theano.function([], [z.transfer("dev0"), z.sum().transfer("dev0")], mode=mode())
    assert len(nodes_of(f)) == 1 and nodes_of(f, OpenCLCAReduce)[0].op.pre_scalar_op is None
    np.testing.assert_allclose(np.asarray(f()[1]), (np.exp(A) * B).sum(), rtol=1e-5)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1)])
def test_reductions_of_nothing(shape):
    (x,) = there(np.ones(shape, "float32"))
    f = theano.function([], tt.sum(tt.exp(x) + 2, axis=0).transfer("dev0"), mode=mode())
    np.testing.assert_allclose(np.asarray(f()), (np.exp(np.ones(shape)) + 2).sum(axis=0), rtol=1e-6)


def test_shapes_of_reductions_are_inferred():
    x, c = OpenCLArrayType("float32", (False, False), "dev0")(), OpenCLArrayType("float32", (False, True), "dev0")()
    op = OpenCLCAReduce(theano.scalar.add, 0, pre_scalar_op=theano.scalar.mul)
    f = theano.function([x, c], op(x, c).shape, mode=theano.Mode("py", "fast_run"))
    assert not nodes_of(f, OpenCLCAReduce)
    device = get_context("dev0")
    assert f(from_host(device, A), from_host(device, COLUMN[:, None])).tolist() == [4]
    with pytest.raises(ValueError, match="Dimension mismatch"):
        theano.function([x, c], op(x, c), mode=theano.Mode("py", None))(
            from_host(device, A), from_host(device, A[:2, :1])
        )


def programs_of(function):
    """Return the set of different kernel codes in a function."""
    return {
        node.op.gpu_kernels(node, "")[0].code
        for node in nodes_of(function)
        if isinstance(node.op.scalar_op, ScalarProgram)
    }


def sum_of_terms(x, count):
    return sum(tt.tanh(x * np.float32(1.05 + k / 1000)) * np.float32(k / 7 + 5) for k in range(count))


@pytest.mark.thorough_cases("150")
@pytest.mark.parametrize("count", [60, *[pytest.param(count, marks=pytest.mark.slow) for count in (20, 150)]])
def test_a_sum_of_many_terms_takes_few_kernels_that_differ_in_numbers_alone(count):
    (x,) = there(A)
    f = theano.function([], sum_of_terms(x, count).transfer("dev0"), mode=mode())
    want = sum(np.tanh(A * np.float32(1.05 + k / 1000)) * np.float32(k / 7 + 5) for k in range(count))
    np.testing.assert_allclose(np.asarray(f()), want, rtol=1e-5)
    assert len(nodes_of(f)) <= -(-3 * count // 50)
    # The sum is computed in parts. There are three programs: for the first part, for the last part, and for all parts
    # in between.
    assert len(programs_of(f)) <= 3


def rescaled(x, factor):
    return tt.exp(x * np.float32(factor)) / np.float32(factor + 1.3) - np.float32(7.1 * factor)


def test_kernels_that_differ_in_numbers_are_one(each_device_kind):
    x, y = there(A, B[:2])
    f = theano.function([], [rescaled(x, 0.3).transfer("dev0"), rescaled(y, 0.8).transfer("dev0")], mode=mode())
    for got, a, factor in zip(f(), (A, B[:2]), (0.3, 0.8)):
        a = a * np.float32(factor)
        want = np.exp(a) / np.float32(factor + 1.3) - np.float32(7.1 * factor)
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)
    assert len(nodes_of(f)) == 2
    (code,) = programs_of(f)
    assert " c0, " in code


def test_a_kernel_like_no_other_keeps_its_numbers(each_device_kind):
    (x,) = there(A)
    f = theano.function([], rescaled(x, 0.3).transfer("dev0"), mode=mode())
    (code,) = programs_of(f)
    assert " c0" not in code


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_are_exact_as_arguments(dtype, each_device_kind):
    arrays = [RNG.uniform(0.5, 2, shape).astype(dtype) for shape in ((3, 5), (2, 2))]
    numbers = np.array([[0.1, -1 / 3, 1e-3, 2.5], [0.2, 1 / 7, 1e-2, 0.7]], dtype)

    def computed(x, a, b, c, d):
        return (x * a + b) * c - d * x

    outputs = [computed(x, *map(np.asarray, row)) for x, row in zip(there(*arrays), numbers, strict=True)]
    want = [computed(x, *row) for x, row in zip(arrays, numbers, strict=True)]
    nodes = kernels(outputs, want, 2, rtol={"float16": 2e-2, "float32": 1e-6, "float64": 1e-14}[dtype])
    assert all(node.op.scalar_op.takes_arguments for node in nodes)
    copied = pickle.loads(pickle.dumps(nodes[0].op.scalar_op))
    assert copied == nodes[0].op.scalar_op and copied.takes_arguments


def test_wide_sums_and_products_of_arrays_are_split():
    arrays = [RNG.uniform(0.9, 1.1, (2, 3)).astype("float32") for _ in range(90)]
    variables = there(*arrays)
    f = theano.function([], [tt.mul(*variables).transfer("dev0"), tt.add(*variables).transfer("dev0")], mode=mode())
    product, total = map(np.asarray, f())
    np.testing.assert_allclose(product, np.prod(arrays, axis=0), rtol=1e-4)
    np.testing.assert_allclose(total, np.sum(arrays, axis=0), rtol=1e-4)
    for node in nodes_of(f):
        assert takes_arguments(node.outputs[0], len(node.inputs) + len(node.outputs))


def test_programs_take_numbers_as_arguments_where_compilers_do_not_need_them():
    builder = ProgramBuilder(["float32"])
    third, two = Number.of(1 / 3, "float32"), Number.of(2, "float32")
    scaled = builder.apply(Scalar("Mul", "float32"), [0, third])
    doubled = builder.apply(Scalar("Mul", "float32"), [scaled, two])
    result = builder.apply(Scalar("ArcTan2", "float32"), [doubled, third])
    program, numbers = builder.build([result, third]).with_arguments()
    assert numbers == (third,)
    assert program.dtypes == ("float32", "float32")
    assert [slots for _, slots in program.steps] == [(0, 1), (2, two), (3, third)]
    assert program.results == (4, third)
    assert builder.build([result]).with_arguments()[0].with_arguments()[1] == ()


def test_a_branch_that_is_not_taken_computes_nothing():
    a, b, takes_first = tt.dmatrix("a"), tt.dmatrix("b"), tt.iscalar("takes_first")
    both = tt.tanh(a)
    chosen = ifelse(tt.gt(takes_first, 0), both * 2, tt.exp(both) * b)
    lazy = theano.Mode("vm", "fast_run").including("opencl")
    for outputs in ([chosen], [chosen, both], [tt.exp(chosen), both + 1]):
        f = theano.function([a, b, takes_first], outputs, mode=lazy)
        assert nodes_of(f)
        for _ in range(3):
            got = f(np.ones((3, 3)), np.ones((2, 2)), 1)
            assert [out.shape for out in got] == [(3, 3)] * len(outputs)
        with pytest.raises(ValueError, match="mismatch"):
            f(np.ones((3, 3)), np.ones((2, 2)), 0)


def test_what_one_branch_alone_needs_is_one_kernel():
    a, takes_first = tt.dmatrix("a"), tt.iscalar("takes_first")
    h = tt.tanh(a)
    chosen = ifelse(tt.gt(takes_first, 0), tt.exp(h * 2) + h, a)
    f = theano.function([a, takes_first], chosen, mode=theano.Mode("vm", "fast_run").including("opencl"))
    assert len(nodes_of(f)) == 1
    x = RNG.uniform(-1, 1, (3, 4))
    np.testing.assert_allclose(f(x, 1), np.exp(np.tanh(x) * 2) + np.tanh(x), rtol=1e-12)
    np.testing.assert_array_equal(f(x, 0), x)
