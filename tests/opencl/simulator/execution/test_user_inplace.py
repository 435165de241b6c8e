"""In-place ops that a user wrote overwrite the caller's arrays, even if the function computes on a device."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import inplace

import optdb
from optdb.opencl.exporting import Untraceable

pytestmark = pytest.mark.usefixtures("engine_where_quick")

HOST = theano.Mode("py", "fast_run")
#: A mode without in-place rewriters: only the ops that the user made in-place overwrite the argument.
PLAIN_HOST = theano.Mode("py", "fast_compile")


def device_modes():
    return {
        "fast_run": theano.Mode("opencl", "fast_run"),
        "fast_compile": theano.Mode("opencl", "fast_compile"),
        "OPENCL": theano.compile.get_mode("OPENCL"),
    }


def host_mode(way):
    """Return a host mode in which only the user's ops write to a mutable argument."""
    return HOST if way == "fast_run" else PLAIN_HOST


def xor(x, y):
    return inplace.xor_inplace(x, y)


def add(x, y):
    return inplace.add_inplace(x, y)


def chain(x, y):
    """Write to the argument with two ops; the caller sees the values that the second op writes."""
    return inplace.mul_inplace(add(x, y), y)


def part(x, y):
    """Overwrite a view of the argument."""
    return add(x[1:], y[1:]) * 2


def transposed(x, y):
    return add(x.T, y.T)


def element(x, y):
    """Set one element or row of the argument."""
    return tt.inc_subtensor(x[0], y[0], inplace=True)


def read_before(x, y):
    """Overwrite the argument after another node, possibly on the device, has read it."""
    return tt.exp(x * 0.125).sum() + add(x, y).sum()


def read_after(x, y):
    """Overwrite the argument, and compute so much with the written values that the device does it."""
    return tt.dot(tt.exp(add(x, y) * 0.0625), y.T) if x.ndim == 2 else tt.exp(add(x, y) * 0.0625) * y


GRAPHS = {
    "xor of vectors": (xor, "lvector"),
    "xor of matrices": (xor, "imatrix"),
    **{f"{graph.__name__}, {kind}": (graph, kind) for graph in (add, chain, part, element) for kind in
       ("fvector", "fmatrix", "lvector")},
    "transposed": (transposed, "fmatrix"),
    "read before": (read_before, "fmatrix"),
    "read before, vector": (read_before, "lvector"),
    "read after": (read_after, "fmatrix"),
    "read after, vector": (read_after, "fvector"),
}  # fmt: skip


def operands(kind, call):
    shape = (5,) if kind.endswith("vector") else (5, 5)
    dtype = getattr(tt, kind)().dtype
    values = np.random.RandomState(call // 2).randint(1, 9, (2, *shape)).astype(dtype)
    return values[0], values[1]


def compiled(graph, kind, mode):
    x, y = getattr(tt, kind)("x"), getattr(tt, kind)("y")
    return theano.function([x, y], [graph(x, y)], mode=mode, accept_inplace=True)


def agree(function, stock, kind, calls=6):
    """Call both functions with new and with repeated values; compare the results, and the arguments after the calls."""
    for call in range(calls):
        given, expected = operands(kind, call), operands(kind, call)
        (held,), (result,) = function(*given), stock(*expected)
        np.testing.assert_allclose(held, result, rtol=1e-5)
        for mine, theirs in zip(given, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert not np.array_equal(given[0], operands(kind, call)[0]), "the graph overwrites nothing"


@pytest.mark.parametrize("way", device_modes())
@pytest.mark.parametrize("name", GRAPHS)
def test_the_caller_sees_what_the_host_writes(name, way):
    graph, kind = GRAPHS[name]
    agree(compiled(graph, kind, device_modes()[way]), compiled(graph, kind, host_mode(way)), kind)


@pytest.mark.parametrize("name", GRAPHS)
def test_simulators(name):
    graph, kind = GRAPHS[name]
    stock = compiled(graph, kind, HOST)
    agree(optdb.SimulatorOCL(compiled(graph, kind, HOST)), stock, kind)


@pytest.mark.parametrize("way", ["fast_run", "OPENCL"])
def test_copies(way):
    f = compiled(add, "fmatrix", device_modes()[way])
    agree(f.copy(), compiled(add, "fmatrix", HOST), "fmatrix")
    agree(f.copy().copy(), compiled(add, "fmatrix", HOST), "fmatrix")


def test_one_array_in_all_calls():
    """Pass the same array in each call; each call reads the values that the last call has written to the array."""
    for way in ("fast_compile", "OPENCL"):
        f, (x, y) = compiled(read_after, "fmatrix", device_modes()[way]), operands("fmatrix", 0)
        expected = x.copy()
        for _ in range(5):
            expected += y
            np.testing.assert_allclose(f(x, y)[0], np.exp(expected * 0.0625) @ y.T, rtol=1e-5)
            np.testing.assert_array_equal(x, expected)


def test_calls_in_a_row():
    x, y = operands("fmatrix", 0)
    expected = x + 7 * y
    simulator = optdb.SimulatorOCL(compiled(add, "fmatrix", HOST))
    np.testing.assert_array_equal(simulator.call_n_times(7, x, y)[0], expected)
    np.testing.assert_array_equal(x, expected)


def test_an_asynchronous_call():
    x, y = operands("fmatrix", 0)
    expected = x + y
    simulator = optdb.SimulatorOCL(compiled(add, "fmatrix", HOST))
    for _ in range(3):
        np.testing.assert_array_equal(simulator.run_async(x, y).wait()[0], expected)
        np.testing.assert_array_equal(x, expected)
        expected = expected + y


def test_check_and_profile_change_nothing():
    x, y = operands("fmatrix", 0)
    simulator = optdb.SimulatorOCL(compiled(read_after, "fmatrix", HOST))
    simulator.check(x, y, raise_on_difference=True)
    simulator.profile(x, y, n=2)
    np.testing.assert_array_equal(x, operands("fmatrix", 0)[0])


@theano.change_flags(cxx="")
def test_a_read_only_argument_raises():
    """Functions must check whether an argument is writeable, because Theano's C code does not."""
    for mode in (HOST, *device_modes().values()):
        x, y = operands("fmatrix", 0)
        x.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            compiled(add, "fmatrix", mode)(x, y)


def test_files_refuse_it(tmp_path):
    x, y = operands("fmatrix", 0)
    simulator = optdb.SimulatorOCL(compiled(read_after, "fmatrix", PLAIN_HOST))
    with pytest.raises(Untraceable, match="add_inplace overwrites the caller's argument"):
        simulator.export(tmp_path / "file.optdb", [(x, y)])


def test_shared_variables_of_the_host():
    """A function overwrites a shared variable, and another function, which has a device copy, reads the new value."""
    for way in ("fast_run", "fast_compile"):
        w = theano.shared(np.ones((3, 3), "float32"), name="w")
        y = tt.fmatrix("y")
        read = theano.function([y], tt.dot(w, y), mode=device_modes()[way])
        for mode in (HOST, device_modes()[way]):
            write = theano.function([y], add(w, y), mode=mode, accept_inplace=True)
            for _ in range(3):
                before = w.get_value()
                np.testing.assert_array_equal(write(np.ones((3, 3), "float32")), before + 1)
                np.testing.assert_array_equal(w.get_value(), before + 1)
                np.testing.assert_array_equal(read(np.eye(3, dtype="float32")), before + 1)


def test_functions_without_such_ops_compute_on_the_device():
    """If only the optimizer made an op in-place, it runs on the device; the argument's later contents are undefined."""
    x, y = tt.fmatrices("x", "y")
    f = theano.function([theano.In(x, mutable=True), y], tt.exp(x) + y, mode=device_modes()["fast_run"])
    assert all("Elemwise" not in str(node) or "OpenCL" in str(node) for node in f.fn.graph.fgraph.apply_nodes)


@pytest.mark.parametrize("mode", [HOST, theano.Mode("opencl", "fast_run")], ids=["host", "device"])
def test_swapped_shared_variables(mode):
    w, other = theano.shared(np.ones((3, 3), "float32")), theano.shared(np.full((3, 3), 5, "float32"))
    y, ones = tt.fmatrix("y"), np.ones((3, 3), "float32")
    write = theano.function([y], add(w, y), mode=mode, accept_inplace=True).copy(swap={w: other})
    for expected in (6, 7, 8):
        np.testing.assert_array_equal(np.squeeze(write(ones)), np.full((3, 3), expected))
        np.testing.assert_array_equal(other.get_value(), np.full((3, 3), expected))
    np.testing.assert_array_equal(w.get_value(), ones)


@pytest.mark.parametrize("way", device_modes())
def test_the_next_value_of_an_argument(way):
    """The result of an in-place op can be the next value of the argument that the op overwrites."""
    x, y = tt.fmatrices("x", "y")
    start, ones = np.full((3, 3), 2, "float32"), np.ones((3, 3), "float32")

    def compile_in(mode):
        following = theano.In(x, value=start.copy(), update=add(x, y), name="x")
        return theano.function([y, following], tt.exp(y), mode=mode, accept_inplace=True)

    device, host = compile_in(device_modes()[way]), compile_in(PLAIN_HOST)
    for _ in range(4):
        np.testing.assert_allclose(device(ones), host(ones), rtol=1e-5)
        np.testing.assert_array_equal(device["x"], host["x"])
    mine, theirs = start.copy(), start.copy()
    device(ones, mine), host(ones, theirs)
    np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(device["x"], host["x"])
