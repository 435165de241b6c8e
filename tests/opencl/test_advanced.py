"""What arrays of indexes and masks name, taken, set and incremented on the device, against NumPy and the host."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from theano.tensor.subtensor import as_index_variable

from optdb.opencl import HostFromOpenCL
from optdb.opencl.ops import advanced
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both, host_function, lifted_function, ops_of

ROWS, COLUMNS = np.array([2, 0, -1, 2]), np.array([[1], [-2]], "int8")
FULL, BACK = slice(None), slice(None, None, -1)
EMPTY = np.zeros(0, "int64")
RNG = np.random.default_rng(0)
MASK = np.array([[True, False, True, True], [False] * 4, [True, True, False, False]])

#: Of an array of shape (3, 4, 2).
INDEXES = {
    "alone": (ROWS,),
    "behind a slice": (FULL, ROWS),
    "last": (FULL, BACK, np.array([1, 0, 1])),
    "matrix": (COLUMNS,),
    "two that broadcast": (ROWS, COLUMNS),
    "two apart": (ROWS, FULL, np.array([0, 1, -1, 0])),
    "two apart by a new axis": (ROWS, None, np.array([0, 1, -1, 3])),
    "number apart": (np.array(1), FULL, np.array([[0, 1], [1, 0]])),
    "numbers alone": (np.array(-1), np.array(2)),
    "new axes": (None, slice(0, 2), None, ROWS[:2]),
    "all three": (ROWS, np.array([0, 3, 3, 0]), np.array([1, 1, 1, 1], "uint8")),
    "empty": (EMPTY, FULL, EMPTY),
    "empty slice": (slice(2, 2), ROWS),
    "mask of all": (RNG.integers(0, 2, (3, 4, 2)).astype(bool),),
    "mask of two": (MASK,),
    "mask and number": (np.array([True, False, True]), np.array([3, 0])),
    "mask behind": (slice(None, None, 2), np.array([True, False, False, True])),
    "mask of nothing": (np.zeros(3, bool), FULL),
    "mask without axes": (np.array(True), ROWS),
}
SHAPE = (3, 4, 2)


def is_masked(index):
    return any(str(getattr(entry, "dtype", "")) == "bool" for entry in index)


def on_host(index):
    """Return an index as the variables that a node has."""
    return [as_index_variable(entry) for entry in index]


@pytest.mark.parametrize("name", INDEXES)
def test_taken_as_in_numpy(name):
    index = INDEXES[name]
    x = RNG.uniform(-1, 1, SHAPE).astype("float32")
    op = advanced.OpenCLAdvancedBooleanSubtensor if is_masked(index) else advanced.OpenCLAdvancedSubtensor
    node = op()(variable(x), *on_host(index)).owner
    for steps in (None, [-1, 2, 1], [1, -2, -1]):
        (got,) = run(node, [device_array(x, steps), *index])
        np.testing.assert_array_equal(got, x[index])
        assert got.shape == x[index].shape


def elements(places):
    """Return the number of each element that is named, as an array of the result's shape."""
    before = places.pattern.before
    grid = np.array(0)
    for axis, (length, step) in enumerate(zip(places.lengths, places.steps, strict=True)):
        if axis == before:
            grid = np.add.outer(grid, places.offsets())
        grid = np.add.outer(grid, np.arange(length) * step)
    if before == len(places.lengths):
        grid = np.add.outer(grid, places.offsets())
    return grid.reshape(places.result)


@st.composite
def indexed(draw):
    """Return a shape and an index for it, with entries of all kinds."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    index, left = [], list(shape)
    while left and draw(st.integers(0, 9)):
        kind = draw(st.sampled_from(["numbers", "numbers", "slice", "none", "mask", "one"]))
        if kind == "none":
            index.append(None)
        elif kind == "slice":
            index.append(draw(st.slices(left.pop(0))))
        elif kind == "mask":
            width = draw(st.integers(0, min(2, len(left))))
            index.append(draw(hnp.arrays(bool, tuple(left[:width]))))
            del left[:width]
        else:
            length = left.pop(0)
            own = () if kind == "one" else tuple(draw(st.sampled_from([1, side])) for side in common)
            numbers = st.integers(-length, length - 1) if length else st.just(0)
            index.append(draw(hnp.arrays(draw(st.sampled_from(["int64", "int8"])), own, elements=numbers)))
    return tuple(shape), tuple(index)


@given(indexed())
@settings(max_examples=300)
def test_found_as_numpy_finds(case):
    shape, index = case
    numbers = np.arange(np.prod(shape)).reshape(shape)
    strides = [stride // numbers.itemsize for stride in numbers.strides]
    pattern = advanced.pattern_of(len(shape), on_host(index))
    try:
        want = numbers[index]
    except IndexError:
        with pytest.raises(IndexError):
            advanced.find(pattern, shape, strides, index)
        return
    found = advanced.find(pattern, shape, strides, index)
    assert found.result == want.shape
    if want.size:
        np.testing.assert_array_equal(elements(found), want)


@given(st.lists(st.integers(0, 6), max_size=20), st.sampled_from([7, 100000]))
def test_the_last_mentions(names, total):
    want = sorted({name: i for i, name in enumerate(names)}.values())
    assert advanced.last_mentions(np.array(names, int), total).tolist() == want


def changed(x, index, y, setting):
    want = x.copy()
    if setting:
        want[index] = y
    else:
        np.add.at(want, index, y)
    return want


@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("name", INDEXES)
def test_changed_as_in_numpy(name, setting):
    index = INDEXES[name]
    x = RNG.integers(-9, 9, SHAPE).astype("float32")
    part = x[index].shape
    op = advanced.OpenCLAdvancedBooleanIncSubtensor if is_masked(index) else advanced.OpenCLAdvancedIncSubtensor
    for shape, steps, inplace in [(part, -1, False), (tuple(1 for _ in part), 1, True), (part[-1:], 2, True)]:
        y = RNG.integers(-9, 9, shape).astype("float32")
        pattern = [length == 1 for length in shape]
        node = op(inplace, setting)(variable(x), variable(y, pattern), *on_host(index)).owner
        array, y_array = device_array(x, [1, -1, 2]), device_array(y, [steps] * y.ndim)
        (got,) = run(node, [array, y_array, *index])
        want = changed(x, index, y, setting)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(array.get(), want if inplace else x)


DTYPES = [("float16", "float16"), ("float32", "float64"), ("int8", "int16"), ("bool", "bool"), ("float64", "int64")]
#: Complex numbers are set, bit by bit; the device does not add them.
CHANGES = [*[(*pair, setting) for pair in DTYPES for setting in (False, True)], ("complex64", "complex64", True)]


@pytest.mark.parametrize("x_dtype, y_dtype, setting", CHANGES)
def test_dtypes(x_dtype, y_dtype, setting):
    x = RNG.uniform(-4, 4, (5, 3)).astype(x_dtype)
    y = RNG.uniform(-4, 4, (4, 2)).astype(y_dtype)
    index = (np.array([[4], [0], [1], [-1]]), np.array([0, 2]))
    node = advanced.OpenCLAdvancedIncSubtensor(False, setting)(variable(x), variable(y), *on_host(index)).owner
    if node.inputs[1].owner is not None:  # cast first
        y = y.astype(x_dtype)
    (got,) = run(node, [device_array(x), device_array(y), *index])
    want = changed(x, index, y, setting)
    assert got.dtype == want.dtype
    loose = 4e-3 if x_dtype == "float16" else 0
    np.testing.assert_allclose(got, want, rtol=loose, atol=loose)


def test_what_is_named_again_is_added_in_order_and_set_to_the_last():
    """The sum of these depends on the order in which they are added."""
    x, y = np.zeros((2, 2), "float32"), np.array([1e8, 3, -1e8, 0.25, 7, 11], "float32")
    index = np.array([0, 0, 0, 0, 1, 1]), np.array([1, 1, 1, 1, 0, 0])
    for setting, want in [(False, [[0, np.float32(1e8) + np.float32(3) - np.float32(1e8) + 0.25], [18, 0]]),
                          (True, [[0, 0.25], [11, 0]])]:  # fmt: skip
        node = advanced.OpenCLAdvancedIncSubtensor(False, setting)(variable(x), variable(y), *on_host(index)).owner
        (got,) = run(node, [device_array(x), device_array(y), *index])
        np.testing.assert_array_equal(got, np.array(want, "float32"))
        np.testing.assert_array_equal(got, changed(x, index, y, setting))


WRONG = {
    "too large": (np.array([0, 3]), np.array([0, 0])),
    "too small": (np.array([0, 0]), np.array([0, -5])),
    "not of one shape": (np.array([0, 1, 2]), np.array([0, 1])),
    "too many": (np.array([0]),) * 4,
    "mask of another length": (np.ones(4, bool), FULL),
    "mask with too many axes": (FULL, np.ones((4, 2, 1), bool)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_there_is_an_index_error(name):
    x = np.ones(SHAPE, "float32")
    with pytest.raises(IndexError) as wanted:
        x[WRONG[name]]
    find = advanced.find
    pattern = advanced.pattern_of(3, on_host(WRONG[name]))
    with pytest.raises(IndexError) as got:
        find(pattern, SHAPE, (8, 2, 1), WRONG[name])
    assert str(got.value).split(" for")[0] == str(wanted.value).split(" for")[0]


def test_what_is_named_of_nothing_is_no_error_where_numpy_only_warns():
    x, index = np.ones((0, 3), "float32"), (FULL, np.array([5]))
    node = advanced.OpenCLAdvancedSubtensor()(variable(x), *on_host(index)).owner
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = x[index]
        except IndexError:
            with pytest.raises(IndexError):
                run(node, [device_array(x), *index])
            return
        assert run(node, [device_array(x), *index])[0].shape == want.shape


NO_ELEMENTS = {
    "rows": lambda x, i, v: (x, (i,), v),
    "rows of part": lambda x, i, v: (x[1:], (i,), v),
    "columns": lambda x, i, v: (x, (FULL, i), v),
    "matrix of indexes": lambda x, i, v: (x, (i.dimshuffle("x", 0),), v),
    "two arrays": lambda x, i, v: (x, (i, i), v),
    "a new axis": lambda x, i, v: (x, (i, None), v),
    "three axes": lambda x, i, v: (x.dimshuffle(0, "x", 1), (i,), v),
}


@pytest.mark.parametrize("name", NO_ELEMENTS)
@pytest.mark.parametrize("kind", ["take", "set", "inc"])
def test_indexes_where_rows_have_no_elements_are_checked_as_on_the_host(kind, name):
    """NumPy 1 only warns where a change names nothing, NumPy 2 raises; the host and the device follow it."""
    x, i, v = tt.fmatrix(), tt.lvector(), tt.fscalar()
    base, index, value = NO_ELEMENTS[name](x, i, v)
    change = {"take": lambda part, _: part, "set": tt.set_subtensor, "inc": tt.inc_subtensor}[kind]
    out = change(base[index], value)
    on_host, on_device = host_function([x, i, v], out), lifted_function([x, i, v], [out], [i, v])
    for shape in [(0, 0), (2, 0), (0, 3), (2, 3)]:
        for indexes in ([5], [-9], [0, 5], [0], []):
            args = np.ones(shape, "float32"), np.array(indexes, "int64"), np.float32(2)
            wanted, got = outcome(on_host, args), outcome(lambda *args: on_device(*args)[0], args)
            assert got == wanted, (shape, indexes)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(IndexError):
            on_device(np.ones((0, 0), "float32"), np.array([5]), np.float32(2))


def outcome(function, args):
    """Return the shape and the values of a function's result, or the class of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            result = np.asarray(function(*args))
        except IndexError as error:
            return type(error)
    return result.shape, result.tobytes()


def test_errors_leave_the_array_alone():
    x, y = np.ones(SHAPE, "float32"), np.ones((4, 2), "float32")
    index = (np.array([0, 3]), np.array([0, 0]))
    op = advanced.OpenCLAdvancedIncSubtensor(True)
    array = device_array(x)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        run(op(variable(x), variable(y), *on_host(index)).owner, [array, device_array(y), *index])
    good = (np.array([0, 2]), np.array([0, 0]))
    with pytest.raises(ValueError, match=r"shape \(4, 2\) to a part of shape \(2, 2\)"):
        run(op(variable(x), variable(y), *on_host(good)).owner, [array, device_array(y), *good])
    np.testing.assert_array_equal(array.get(), x)


def test_lifted_with_indexes_at_home():
    x, y, i, j, n = tt.ftensor3(), tt.fmatrix(), tt.lvector(), tt.lmatrix(), tt.lscalar()
    a, b = RNG.uniform(-1, 1, SHAPE).astype("float32"), RNG.uniform(-1, 1, (4, 2)).astype("float32")
    outputs = [
        x[i, j],
        x[1:n, i],
        x[:, None, i],
        x[n - 2, :, i % 2],
        tt.inc_subtensor(x[i, i], y),
        tt.set_subtensor(x[i, :, i % 2], 2),
        theano.grad((x[i, j[0]] ** 2).sum(), x),
        tt.inc_subtensor(x[:, n:, i % 2], y[:, 0]),
    ]
    got, want, ops = both([x, y, i, j, n], outputs, [a, b, ROWS, COLUMNS.astype("int64"), 2], at_home=[i, j, n])
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert {advanced.OpenCLAdvancedSubtensor, advanced.OpenCLAdvancedIncSubtensor} <= set(ops)
    assert not any(op.__name__.startswith("Advanced") for op in ops)


def test_indexes_that_are_computed_on_the_device_come_home():
    x, y = tt.fmatrix(), tt.fmatrix()
    a, b = RNG.uniform(-1, 1, (4, 3)).astype("float32"), RNG.uniform(-1, 1, (4, 3)).astype("float32")
    best = tt.argmax(y, axis=1)
    outputs = [
        x[tt.arange(4), best],
        x[best],
        tt.set_subtensor(x[x > 0], 0.5),
        x[y > 0],
        tt.inc_subtensor(x[(y > 0).nonzero()], 2),
        theano.grad(x[y > 0].sum(), x),
    ]
    got, want, ops = both([x, y], outputs, [a, b])
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    kinds = {advanced.OpenCLAdvancedSubtensor, advanced.OpenCLAdvancedBooleanSubtensor,
             advanced.OpenCLAdvancedIncSubtensor, advanced.OpenCLAdvancedBooleanIncSubtensor}  # fmt: skip
    assert kinds <= set(ops)
    f = lifted_function([x, y], [x[tt.arange(4), best], tt.inc_subtensor(x[tt.arange(4), best], 1)])
    assert sum(isinstance(node.op, HostFromOpenCL) for node in f.maker.fgraph.apply_nodes) == 1


def test_what_numpy_does_not_add_stays_on_the_host():
    x, y, i = tt.lvector(), tt.fvector(), tt.lvector()
    f = lifted_function([x, y, i], [advanced.host.AdvancedIncSubtensor()(x, y, i)], at_home=[i])
    assert advanced.host.AdvancedIncSubtensor in ops_of(f)


def test_worked_in_place_where_nobody_needs_what_was_there(default):
    x, y, i = tt.fmatrix(), tt.fvector(), tt.lvector()
    mode = theano.Mode("py", "fast_run").including("opencl")
    outputs = [tt.inc_subtensor(tt.dot(x, x)[i, i], y), tt.dot(tt.set_subtensor(tt.dot(x, x)[x > 0], 1), x)]
    f = theano.function([x, y, i], outputs, mode=mode)
    nodes = [node for node in f.maker.fgraph.toposort() if hasattr(node.op, "set_instead_of_inc")]
    assert {type(node.op) for node in nodes} == {
        advanced.OpenCLAdvancedIncSubtensor,
        advanced.OpenCLAdvancedBooleanIncSubtensor,
    }
    a, b, at = np.arange(9, dtype="float32").reshape(3, 3) - 4, np.ones(3, "float32"), np.array([0, 0, 2])
    assert any(node.op.inplace for node in nodes)
    first, second = a @ a, a @ a
    np.add.at(first, (at, at), b)
    second[a > 0] = 1
    for got, want in zip(f(a, b, at), [first, second @ a], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("kind", [advanced.OpenCLAdvancedIncSubtensor, advanced.OpenCLAdvancedBooleanIncSubtensor])
def test_ops_are_pickled(kind):
    for op in (kind(), kind(True, True)):
        again = pickle.loads(pickle.dumps(op))
        assert again == op and getattr(again, "destroy_map", None) == getattr(op, "destroy_map", None)
