"""Equal parts of wide sums and products are replaced by other sums and products; graphs do not grow."""

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor.elemwise import Elemwise

import optdb
from profiles.models import build
from tests.effort import examples

STOCK = theano.Mode("py", "fast_run")
MODE = optdb.mode(STOCK)
WITHOUT = MODE.excluding("reuse_wide_sums")
STEPS = 8


def nodes(f):
    return f.maker.fgraph.toposort()


def operations(f):
    """Return the number of scalar operations per element; an addition of n terms counts as n - 1."""

    def cost(node):
        inner = getattr(node.op.scalar_op, "fgraph", None)
        steps = [node] if inner is None else inner.apply_nodes
        return sum(max(len(step.inputs) - 1, 1) for step in steps)

    return sum(cost(node) for node in nodes(f) if isinstance(node.op, Elemwise))


def inputs(steps, dtype="float64", ndim=2):
    return [tt.TensorType(dtype, (False,) * ndim)(f"a{t}") for t in range(steps)]


def values(count, dtype="float64", shape=(2, 3)):
    rng = np.random.RandomState(0)
    return [rng.uniform(0.5, 2, shape).astype(dtype) for _ in range(count)]


def recurrence(step, steps=STEPS):
    """Return inputs and the row sums of a recurrence's states; the sums prevent the fusion of the states."""
    terms = inputs(steps)
    states, state = [], terms[0]
    for term in terms[1:]:
        state = step(state, term)
        states.append(state)
    return terms, [state.sum(axis=0) for state in states]


#: Recurrences in which Theano simplifies each step, and thereby flattens the sum or product of all earlier steps.
RECURRENCES = {
    "sums": lambda s, a: s + a + tt.sin(a) - a,
    "differences": lambda s, a: s - (a + tt.sin(a) - a),
    "products": lambda s, a: s * a * tt.sin(a) / a,
    "quotients": lambda s, a: s / (a * tt.sin(a) / a),
}


@pytest.mark.parametrize("step", RECURRENCES.values(), ids=RECURRENCES)
def test_the_work_of_a_recurrence_is_linear(step):
    few, many = (theano.function(*recurrence(step, n), mode=MODE) for n in (STEPS, 2 * STEPS))
    assert operations(many) < 2.5 * operations(few)


@pytest.mark.parametrize("step", RECURRENCES.values(), ids=RECURRENCES)
def test_the_graph_is_no_larger_and_the_values_are_the_same(step):
    terms, outputs = recurrence(step)
    ours, without, stock = (theano.function(terms, outputs, mode=mode) for mode in (MODE, WITHOUT, STOCK))
    assert len(nodes(ours)) <= min(len(nodes(without)), len(nodes(stock)))
    assert operations(ours) < operations(without)
    data = values(STEPS)
    for mine, theirs in zip(ours(*data), stock(*data), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.slow
def test_gates_that_are_written_out():
    """Without the pass, the canonical form of this GRU would repeat the sum of all earlier steps in each step."""
    models = [build("gru30_gates", steps=steps, width=4, batch=2) for steps in (3, 6)]
    few, many = (theano.function(m.inputs, m.outputs, updates=m.updates, mode=MODE) for m in models)
    model = models[-1]
    stock = theano.function(model.inputs, model.outputs, updates=model.updates, mode=STOCK)
    assert len(nodes(many)) < len(nodes(stock))
    assert operations(many) < 2.5 * operations(few)
    assert operations(many) < operations(
        theano.function(model.inputs, model.outputs, updates=model.updates, mode=WITHOUT)
    )
    before = [shared.get_value() for shared in model.updates]
    results = []
    for function in (stock, many):
        for shared, value in zip(model.updates, before, strict=True):
            shared.set_value(value)
        results.append([*function(*model.data), *(shared.get_value() for shared in model.updates)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)


def wide(ours):
    """Return the widths of additions and multiplications, in descending order."""
    plain = [node for node in nodes(ours) if isinstance(node.op, Elemwise)]
    return sorted((len(node.inputs) for node in plain), reverse=True)


def compiled(terms, outputs, mode=MODE):
    return theano.function(terms, outputs, mode=mode.excluding("inplace"), on_unused_input="ignore")


def test_an_output_is_reused():
    a = inputs(5)
    f = compiled(a, [tt.add(*a[:4]), tt.add(*a)])
    assert wide(f) == [4, 2]
    for mine, theirs in zip(f(*values(5)), (sum(values(4)), sum(values(5))), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_the_widest_sum_is_reused():
    a = inputs(6)
    f = compiled(a, [tt.add(*a[:3]), tt.add(*a[:5]), tt.add(*a)])
    assert wide(f) == [3, 3, 2]


def test_equal_sums_are_one():
    a = inputs(4)
    f = compiled(a, [tt.add(*a), tt.add(*a[::-1])])
    assert wide(f) == [4]
    for value in f(*values(4)):
        np.testing.assert_allclose(value, sum(values(4)))


def test_a_term_counts_as_often_as_it_occurs():
    x, y, z, w = inputs(4)
    f = compiled([x, y, z, w], [x + y + z + y, x + y + z + w], MODE.excluding("canonicalize", "specialize"))
    data = values(4)
    for mine, theirs in zip(f(*data), (data[0] + 2 * data[1] + data[2], sum(data)), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_terms_keep_their_sides():
    a, b, c, d = inputs(4)
    f = compiled([a, b, c, d], [a - b + c, a + b + c + d, a - b + c - d])
    data = values(4)
    expected = data[0] - data[1] + data[2], sum(data), data[0] - data[1] + data[2] - data[3]
    for mine, theirs in zip(f(*data), expected, strict=True):
        np.testing.assert_allclose(mine, theirs)
    assert operations(f) == 2 + 3 + 1


def stays(terms, outputs):
    """Assert that the pass leaves the graph unchanged."""
    ours, without = (compiled(terms, outputs, mode) for mode in (MODE, WITHOUT))
    assert [str(node) for node in nodes(ours)] == [str(node) for node in nodes(without)]


def test_narrow_sums_stay():
    a = inputs(4)
    stays(a, [a[0] + a[1], a[0] + a[1] + a[2], a[0] + a[1] + a[3]])


def test_a_sum_that_fusion_would_remove_stays():
    a = inputs(6)
    stays(a, [tt.exp(tt.add(*a[:4])), tt.exp(tt.add(*a))])


def test_sums_of_several_dtypes_stay():
    a = [*inputs(4, "float32"), *inputs(1, "float64")]
    stays(a, [tt.add(*a[:4]), tt.add(*a)])


def test_truth_values_stay():
    a = inputs(5, "bool")
    stays(a, [tt.add(*a[:4]), tt.add(*a)])


def test_broadcast_terms_keep_the_type():
    row, *rest = tt.drow("r"), *inputs(3)
    f = compiled([row, *rest], [row + rest[0] + rest[1], row + rest[0] + rest[1] + rest[2]])
    data = [values(1, shape=(1, 3))[0], *values(3)]
    for mine, theirs in zip(f(*data), (sum(data[:3]), sum(data)), strict=True):
        np.testing.assert_allclose(mine, theirs)
    assert wide(f) == [3, 2]


def test_lengths_are_still_compared():
    a = inputs(4)
    f = compiled(a, [tt.add(*a[:3]), tt.add(*a)])
    data = [*values(3), np.ones((3, 3))]
    with pytest.raises(ValueError):
        f(*data)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "complex128"])
def test_other_numbers(dtype):
    a = inputs(5, dtype)
    data = [(10 * value).astype(dtype) for value in values(5)]
    stock, ours = (compiled(a, [tt.add(*a[:4]), tt.add(*a)], mode)(*data) for mode in (STOCK, MODE))
    for mine, theirs in zip(ours, stock, strict=True):
        np.testing.assert_allclose(mine, theirs)
        assert mine.dtype == theirs.dtype


def test_stock_modes_do_not_have_it():
    a = inputs(5)
    assert wide(compiled(a, [tt.add(*a[:4]), tt.add(*a)], STOCK)) == [5, 4]


@st.composite
def graphs(draw):
    """Draw inputs, and expressions that add, subtract, multiply and divide inputs and earlier expressions."""
    leaves = inputs(draw(st.integers(4, 7)))
    pool, outputs = list(leaves), []
    for _ in range(draw(st.integers(2, 6))):
        value = draw(st.sampled_from(pool))
        for _ in range(draw(st.integers(2, 6))):
            other = draw(st.sampled_from(pool))
            value = draw(st.sampled_from([tt.add, tt.add, tt.sub, tt.mul, tt.true_div]))(value, other)
        pool.append(value)
        use = draw(st.sampled_from([lambda x: x, lambda x: x.sum(axis=1), tt.tanh, None]))
        if use is not None:
            outputs.append(use(value))
    return leaves, [*outputs, pool[-1].sum()]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(graphs())
def test_random_graphs(graph):
    leaves, outputs = graph
    stock, without, ours = (
        theano.function(leaves, outputs, mode=mode, on_unused_input="ignore") for mode in (STOCK, WITHOUT, MODE)
    )
    # The reference is the mode without the pass, because stock Theano rewrites in another order, which can lead to
    # other graphs: for example, (x + x) / x * y becomes y + y instead of 2 * y.
    assert len(nodes(ours)) <= len(nodes(without))
    data = values(len(leaves))
    for mine, theirs in zip(ours(*data), stock(*data), strict=True):
        scale = np.max(np.abs(theirs[np.isfinite(theirs)]), initial=1)
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9 * scale)
