"""Whole functions work with shared variables, updates, random numbers, arguments of other shapes, and threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.ifelse import ifelse
from pytensor.tensor.random.utils import RandomStream

import optdb.pytensor
from optdb.device.functions import tracer
from optdb.pytensor import call_warnings
from optdb.runtime import host_buffers
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DEVICE_KINDS
from tests.effort import examples
from tests.pytensor.comparing import compare, mode_of_kind, sort_on_host

RNG = np.random.default_rng(5)
#: Arguments with this number of elements are too large to be copied in each call.
LARGE = 20_000


def on_device(inputs, outputs, **kwargs):
    return pytensor.function(inputs, outputs, mode="OPENCL", **kwargs)


@pytest.mark.parametrize("n", [5, LARGE])
def test_a_shared_variable_has_its_value_at_each_call(n):
    shared = pytensor.shared(RNG.normal(size=n))
    v = pt.vector("v")
    f = on_device([v], (shared * v).sum())
    for _ in range(2):
        for value in (RNG.normal(size=n), np.ones(n), np.arange(float(n))):
            shared.set_value(value)
            for _ in range(3):
                assert f(np.ones(n)) == pytest.approx(value.sum())
            shared.set_value(value * 2, borrow=True)
            assert f(np.ones(n)) == pytest.approx(2 * value.sum())
    held = shared.get_value(borrow=True)
    held[...] = 3.0
    shared.set_value(held, borrow=True)
    assert f(np.ones(n)) == pytest.approx(3.0 * n)
    shared.set_value(RNG.normal(size=n + 7))
    assert f(np.ones(n + 7)) == pytest.approx(shared.get_value().sum())


@pytest.mark.parametrize("n", [5, LARGE])
def test_updates_read_the_values_before(n):
    first, second = (pytensor.shared(RNG.normal(size=n)) for _ in range(2))
    a, b = first.get_value(), second.get_value()
    f = on_device([], [first, first.sum()], updates=[(first, second * 2), (second, first + 1)])
    for _ in range(5):
        before, total = f()
        np.testing.assert_allclose(before, a)
        assert total == pytest.approx(a.sum())
        a, b = b * 2, a + 1
        np.testing.assert_allclose(first.get_value(), a)
        np.testing.assert_allclose(second.get_value(), b)


def test_results_are_the_callers():
    v = pt.vector("v")
    f = on_device([v], [v * 2, v, pt.ones(3)])
    kept = [f(np.full(3, float(number))) for number in range(4)]
    for number, (double, same, ones) in enumerate(kept):
        np.testing.assert_array_equal(double, np.full(3, 2.0 * number))
        np.testing.assert_array_equal(same, np.full(3, float(number)))
        np.testing.assert_array_equal(ones, np.ones(3))
        ones[:] = 7
        double[:] = 7
    np.testing.assert_array_equal(f(np.zeros(3))[2], np.ones(3))


def test_an_argument_may_be_returned_and_changed():
    v = pt.vector("v")
    f = on_device([v], v)
    given_array = np.arange(3.0)
    result = f(given_array)
    result[:] = -1
    np.testing.assert_array_equal(given_array, np.arange(3.0))


def test_random_numbers_are_those_of_the_default():
    draws = {}
    for mode in ("OPENCL", Mode("py", None)):
        stream = RandomStream(seed=7)
        normal = stream.normal(2.0, 3.0, size=(4,))
        f = pytensor.function([], [normal, pt.exp(normal).sum()], mode=mode)
        draws[mode] = [f() for _ in range(4)]
    for device, host in zip(*draws.values(), strict=True):
        for one, other in zip(device, host, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_loops_and_lazy_choices_run_on_the_host():
    v, n = pt.vector("v"), pt.lscalar("n")
    total = pytensor.scan(
        lambda x, before: before * 0.5 + x, sequences=v, outputs_info=pt.zeros(()), return_updates=False
    )
    chosen = ifelse(pt.gt(n, 0), v.sum(), v.prod())
    f = on_device([v, n], [pt.exp(total).sum(), chosen * 2])
    for count in (1, -1, 1):
        expected = np.zeros(())
        steps = []
        for x in np.arange(1.0, 4.0):
            expected = expected * 0.5 + x
            steps.append(np.exp(expected))
        results = f(np.arange(1.0, 4.0), count)
        assert results[0] == pytest.approx(np.sum(steps))
        assert results[1] == pytest.approx(12.0)


def test_shapes_that_a_call_gives():
    n, m = pt.lscalars("n", "m")
    v = pt.vector("v")
    outputs = [pt.zeros((n, m)) + 1, pt.arange(n) * m, v[:n].sum(), v.reshape((n, -1)).sum(axis=0), pt.tile(v, n)]
    six = RNG.normal(size=6)
    compare([n, m, v], outputs, [2, 3, six], [3, 1, six], [6, 0, six], [2, 3, six])


def test_shapes_that_values_give():
    v = pt.vector("v")
    positive = pt.nonzero(v > 0)[0]
    compare(
        [v], [v[positive], v[positive].sum(), positive.shape[0]], [RNG.normal(size=9)], [RNG.normal(size=9)], on_host=1
    )


def test_single_precision_and_complex_numbers():
    f32 = pt.fmatrix("f32")
    z = pt.zmatrix("z")
    x = RNG.normal(size=(6, 7))
    compare([f32], [pt.exp(f32).sum(axis=0), f32 @ f32.T, pt.sigmoid(f32), f32.mean()], [x.astype("float32")])
    compare([z], [z * 2 + 1j, z.real.sum(), pt.abs(z), z.sum(axis=1)], [x + 1j * x[::-1]])


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_a_complex_sum_with_a_real_dtype_discards_the_imaginary_part(dtype):
    z = pt.zmatrix("z")
    x = RNG.normal(size=(6, 7)) * 9
    compare([z], [z.sum(axis=1, dtype=dtype), z.sum(dtype=dtype)], [x + 1j * x[::-1]])


def test_complex_elements_at_computed_indices():
    z, i = pt.zmatrix("z"), pt.lvector("i")
    row = z[0]
    outputs = [z[i], z[:, i].real * 2, row[i].sum(), pt.set_subtensor(row[i], 1j)]
    x = RNG.normal(size=(6, 20))
    compare([z, i], outputs, [x + 1j * x[::-1], np.array([3, 2, -1])])


def test_functions_without_inputs_or_outputs():
    assert on_device([], pt.constant(np.arange(3.0)).sum())() == 3.0
    shared = pytensor.shared(1.0)
    f = on_device([], [], updates=[(shared, shared + 1)])
    assert f() == []
    f()
    assert shared.get_value() == 3.0


def test_threads_take_turns():
    v = pt.vector("v")
    functions = [on_device([v], pt.exp(v * number).sum()) for number in range(3)]
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            number = int(rng.integers(3))
            x = rng.normal(size=int(rng.integers(1, 4)) * 10)
            if abs(functions[number](x) - np.exp(x * number).sum()) > 1e-9:
                wrong.append((seed, number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sparse_matrices_stay_on_the_host():
    x, y = pytensor.sparse.csr_matrix("x", dtype="float64"), pt.matrix("y")
    doubled = pytensor.sparse.csr_from_dense(pt.exp(y)) * 2
    f = on_device([x, y], [pytensor.sparse.dot(x, y) + 1, pytensor.sparse.dense_from_sparse(doubled), x.shape])
    for n in (3, 3, 5):
        a, b = scipy.sparse.random(n, 4, 0.5, "csr", rng=RNG), RNG.normal(size=(4, 2))
        product, dense, shape = f(a, b)
        np.testing.assert_allclose(product, a @ b + 1)
        np.testing.assert_allclose(dense, 2 * np.exp(b))
        assert tuple(shape) == (n, 4)


def test_what_a_function_does_is_explained():
    x = pt.matrix("x")
    f = on_device([x], sort_on_host(pt.exp(x), axis=0)[3].sum())
    assert optdb.pytensor.explain(f) == "not called yet"
    f(np.ones((300, 40)))
    text = optdb.pytensor.explain(f)
    assert "a loop over 12000 points, 1 scalars a point: ElementStore" in text
    assert "moves 192,000 bytes in each call" in text
    assert "is not supported on the device" in text
    with pytest.raises(TypeError, match="mode='OPENCL'"):
        optdb.pytensor.explain(pytensor.function([x], x.sum(), mode=Mode("py", None)))
    with pytest.raises(TypeError, match="3 is not of mode OPENCL"):
        optdb.pytensor.explain(3)


def test_a_linker_by_name_and_a_device_by_spec():
    x = pt.vector("x")
    for mode in (Mode("opencl"), optdb.pytensor.opencl_mode("opencl")):
        assert pytensor.function([x], pt.sqr(x).sum(), mode=mode)(np.arange(4.0)) == 14.0


def test_functions_are_pickled():
    x = pt.vector("x")
    f = pickle.loads(pickle.dumps(on_device([x], pt.exp(x).sum())))
    assert f(np.zeros(4)) == 4.0
    assert f.maker.linker.device is None


def test_a_device_without_double_precision_is_named_with_the_cure():
    context = Context("opencl")
    context.profile = replace(context.profile, float64=False)
    x, y = pt.vector("x"), pt.fvector("y")
    double, single = (pytensor.function([v], pt.exp(v).sum(), mode=_linked(context)) for v in (x, y))
    with pytest.raises(TypeError, match="floatX = 'float32'"):
        double(np.zeros(3))
    assert single(np.zeros(3, "float32")) == 3.0


def _linked(context):
    class Linker(optdb.pytensor.OpenCLLinker):
        context = property(lambda self: context)

    return Mode(Linker(), optdb.pytensor.OPENCL.provided_optimizer)


def test_a_function_that_is_too_small_warns_once(monkeypatch, tmp_path):
    monkeypatch.setattr(call_warnings, "_mark", lambda: tmp_path / "mark")
    monkeypatch.setattr(call_warnings, "SMALL_CALL_S", 60.0)
    x = pt.vector("x")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for f in (on_device([x], x.sum()), on_device([x], x.max())):
            for _ in range(530):
                f(np.ones(3))
    (warning,) = [entry for entry in caught if entry.category is optdb.pytensor.TooSmallWarning]
    assert "omit mode='OPENCL'" in str(warning.message)


def test_neither_theano_nor_the_side_of_theano_is_imported():
    wrong = "m.split('.')[0] == 'theano' or m.startswith('optdb.host')"
    code = f"import sys, optdb.pytensor; print([m for m in sys.modules if {wrong}])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
def test_processes_that_start_afresh_use_the_device_and_warn_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import multiprocessing
import numpy as np, pytensor, pytensor.tensor as pt
import optdb.pytensor
from optdb.pytensor import call_warnings

call_warnings.SMALL_CALL_S = 60.0

def work(seed):
    x = pt.vector("x")
    f = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
    return [float(f(np.zeros(seed))) for _ in range(530)][-1]

if __name__ == "__main__":
    assert work(3) == 3.0
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, [4, 5]))
"""
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200)
    assert result.stdout.strip() == "[4.0, 5.0]", result.stderr
    assert result.stderr.count("TooSmallWarning") == 1


_SHAPES = [(6, 5), (40, 6), (6, 30), (50, 20), (300, 6)]


@st.composite
def graphs(draw):
    """Draw a graph of matrices of one shape, with at least 6 rows and 5 columns, and a few results of it."""
    inputs = [pt.matrix("a"), pt.matrix("b"), pt.vector("c"), pt.lvector("k")]
    a, b, c, k = inputs
    matrices = [a, b, a + c]
    for _ in range(draw(st.integers(2, 8))):
        one, other = draw(st.sampled_from(matrices)), draw(st.sampled_from(matrices))
        number = draw(st.integers(-6, 5))
        matrices.append(
            draw(
                st.sampled_from(
                    [
                        lambda one, other, n: one * other,
                        lambda one, other, n: pt.tanh(one) - other,
                        lambda one, other, n: one + other.sum(axis=0),
                        lambda one, other, n: one * other.max(axis=1, keepdims=True),
                        lambda one, other, n: pt.switch(pt.all(one > -50), other, 0.0),
                        lambda one, other, n: pt.special.softmax(one, axis=n % 2) * other,
                        lambda one, other, n: pt.set_subtensor(one[n], other[n]),
                        lambda one, other, n: pt.inc_subtensor(one[:, ::2], other[:, 1:4]),
                        lambda one, other, n: one[k] + other,
                        lambda one, other, n: pt.inc_subtensor(one[k], other),
                        lambda one, other, n: pt.concatenate([one[:2], other[2:]], axis=0),
                        lambda one, other, n: pt.tanh(one @ (other.T @ one)),
                        lambda one, other, n: pt.cumsum(one, axis=n % 2) * 0.1 + other,
                        lambda one, other, n: one[::-1, ::-1] + other,
                        lambda one, other, n: (one @ c).dimshuffle(0, "x") * other,
                        lambda one, other, n: (one.T @ other[:, 0]) + other,
                        lambda one, other, n: one.reshape((one.shape[1], one.shape[0])).T + other,
                        lambda one, other, n: pt.logsumexp(one, axis=n % 2, keepdims=True) - other,
                        lambda one, other, n: one[pt.arange(one.shape[0]), k % 5].dimshuffle(0, "x") * other,
                        lambda one, other, n: pt.diff(one, axis=n % 2).sum(axis=n % 2, keepdims=True) + other,
                        lambda one, other, n: pt.sign(one) * abs(other) ** 1.5,
                    ]
                )
            )(one, other, number)
        )
    results = [draw(st.sampled_from(matrices)) for _ in range(2)]
    results += [draw(st.sampled_from(matrices)).sum(axis=draw(st.sampled_from([None, 0, 1])))]
    cost = matrices[-1].sum()
    results += pytensor.grad(cost, [a, c], disconnected_inputs="ignore")
    return inputs, results


@settings(max_examples=examples(40, share=10), deadline=None)
@given(graphs(), st.sampled_from(_SHAPES), st.sampled_from(DEVICE_KINDS), st.integers(0, 2**32 - 1))
def test_random_graphs_with_gradients(graph, shape, kind, seed):
    inputs, results = graph
    rng = np.random.default_rng(seed)
    rows, columns = shape
    calls = [
        [rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=columns), rng.integers(-6, 6, rows)]
        for _ in range(3)
    ]
    compare(inputs, results, *calls, rtol=1e-7, mode=mode_of_kind(kind))


@pytest.mark.slow
def test_a_first_run_prints_what_the_program_prints(tmp_path):
    code = (
        "import numpy as np, optdb.pytensor, pytensor, pytensor.tensor as pt\n"
        "x = pt.vector('x')\n"
        "print(pytensor.function([x], pt.exp(x).sum(), mode='OPENCL')(np.zeros(3)))"
    )
    folders = {"HOME": "home", "XDG_CACHE_HOME": "cache", "POCL_CACHE_DIR": "pocl"}
    env = {**os.environ, **{variable: str(tmp_path / folder) for variable, folder in folders.items()}}
    env["PYTENSOR_FLAGS"] = f"{env['PYTENSOR_FLAGS']},base_compiledir={tmp_path / 'pytensor'}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("3.0\n", "")


ROWS = """
import numpy as np, pytensor, pytensor.tensor as pt
import optdb.pytensor
from pytensor.compile.mode import Mode

mode = Mode(optdb.pytensor.OpenCLLinker(device="oclgrind"), optdb.pytensor.OPENCL.provided_optimizer)
x, i, v = pt.fmatrix("x"), pt.lvector("i"), pt.fvector("v")
outputs = [x[i], x[i, 1:], x[i, ::2], x[:, i], x * v[:, None] + pt.arange(x.shape[1])]
f = pytensor.function([x, i, v], outputs, mode=mode)
for rows, columns in [(20, 3), (20, 17), (7, 32)]:
    a = np.arange(rows * columns, dtype="float32").reshape(rows, columns)
    b, c = np.array([0, 2, min(rows, columns) - 1]), np.linspace(0, 1, rows, dtype="float32")
    wanted = [a[b], a[b, 1:], a[b, ::2], a[:, b], a * c[:, None] + np.arange(columns)]
    for got, want in zip(f(a, b, c), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    f(a, np.full(3, -1), c)
"""


@pytest.mark.slow
def test_kernels_for_incomplete_vectors_stay_inside_arrays(tmp_path):
    env = {**os.environ, "OCLGRIND_LOG": str(tmp_path / "log.txt")}
    subprocess.run([sys.executable, "-c", ROWS], check=True, env=env)
    assert (tmp_path / "log.txt").read_text() == ""


@pytest.fixture
def in_place(monkeypatch):
    """Makes devices that share host memory read arguments and write results of any size in place."""
    monkeypatch.setattr(tracer, "LEAST_IN_PLACE", 1)
    monkeypatch.setattr(host_buffers, "MIN_ZERO_COPY_BYTES", 1)


def shifted(value):
    """Return a copy of an array at an address that is not a multiple of the item size."""
    memory = np.zeros(value.nbytes + 3, "uint8")
    copy = np.ndarray(value.shape, value.dtype, buffer=memory.data, offset=3)
    copy[...] = value
    return copy


def read_only(value):
    value.flags.writeable = False
    return value


@pytest.mark.parametrize(
    "layout",
    [np.array, np.asfortranarray, lambda x: np.repeat(x, 2, axis=-1)[..., ::2], shifted, read_only],
    ids=["new", "fortran", "strided", "unaligned", "read-only"],
)
def test_arguments_that_are_read_in_place(layout, in_place):
    x, v, i = pt.matrix("x"), pt.vector("v"), pt.lvector("i")
    outputs = [x @ v, pt.zeros(7)[i].inc(v), (x + 1).sum(axis=0), x.T, x[2:, 3], v]
    f = on_device([x, v, i], outputs, trust_input=True)
    kept = []
    for columns in [40, 40, 40, 30, 40, 30, 30, 40]:
        a, b, c = RNG.normal(size=(5, columns)), RNG.normal(size=columns), RNG.integers(0, 7, columns)
        want = [a @ b, np.bincount(c, b, 7), (a + 1).sum(axis=0), a.T.copy(), a[2:, 3:4].sum(axis=1), b.copy()]
        got = f(layout(a), layout(b), c)
        kept += zip(got, want)
        same = f(b[None].repeat(5, 0), b, c)  # other arrays do not change earlier results
        kept.append((same[5], b.copy()))
    for value, expected in kept:
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


def test_changes_of_an_argument_that_is_read_in_place(in_place):
    x = pt.vector("x")
    f = on_device([x], [x.sum(), x * 2], trust_input=True)
    a = RNG.normal(size=100)
    for _ in range(5):
        total, twice = f(a)
        np.testing.assert_allclose(total, a.sum())
        np.testing.assert_allclose(twice, a * 2)
        a += 1


def test_an_error_of_a_call_that_reads_arguments_in_place(in_place):
    x, i = pt.vector("x"), pt.lvector("i")
    f = on_device([x, i], [x[i].sum(), x * 2], trust_input=True)
    for length in [100, 100, 100, 100, 70, 70]:
        a = RNG.normal(size=length)
        with pytest.raises(IndexError):
            f(a, np.full(100, length))
        total, twice = f(a, np.full(100, 3))
        np.testing.assert_allclose(total, 100 * a[3])
        np.testing.assert_allclose(twice, 2 * a)


def test_functions_with_updates_read_no_argument_in_place(in_place):
    x, shared = pt.vector("x"), pytensor.shared(np.ones(100))
    f = on_device([x], [x + shared], updates=[(shared, shared * 2)], trust_input=True)
    for call in range(5):
        # The argument is the memory of the shared variable, which the call overwrites.
        value = shared.get_value(borrow=True)
        np.testing.assert_array_equal(f(value)[0], np.full(100, 2.0 ** (call + 1)))
        np.testing.assert_array_equal(shared.get_value(), np.full(100, 2.0 ** (call + 1)))


def test_results_that_are_written_in_place(in_place):
    x, v = pt.matrix("x"), pt.vector("v")
    outputs = [x + v, pt.concatenate([x, 2 * x]), (x * v).sum(axis=0), x, pt.outer(v, v), x + v]
    f = on_device([x, v], outputs, trust_input=True)
    kept = []
    for columns in [40, 40, 40, 30, 40, 30, 30, 40, 40]:
        a, b = RNG.normal(size=(5, columns)), RNG.normal(size=columns)
        want = [a + b, np.concatenate([a, 2 * a]), (a * b).sum(axis=0), a, np.outer(b, b), a + b]
        got = f(a, b)
        for value, expected in zip(got, want):
            np.testing.assert_allclose(value, expected, rtol=1e-12)
            assert value.flags.writeable and value.flags.aligned
        kept += zip(got[::2], want[::2])
        for value in got[1::2]:
            value[...] = np.nan  # results do not share memory
    for value, expected in kept:
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_memory_of_results_is_used_again_if_the_caller_has_dropped_it(in_place):
    x = pt.vector("x")
    f = on_device([x], x + 1, trust_input=True)
    a = np.arange(100.0)
    for _ in range(5):
        f(a)
    address = f(a).ctypes.data
    assert f(a).ctypes.data == address
    part = f(a)[10:20]
    assert f(a).ctypes.data != address
    np.testing.assert_array_equal(part, a[10:20] + 1)
    # A result may be the next call's argument.
    for _ in range(5):
        a = f(a)
    np.testing.assert_array_equal(a, np.arange(100.0) + 5)


def test_errors_leave_results_that_are_written_in_place_unchanged(in_place):
    x, i = pt.vector("x"), pt.lvector("i")
    f = on_device([x, i], x[i], trust_input=True)
    a, index = np.arange(100.0), np.arange(50)
    kept = [f(a, index) for _ in range(4)]
    with pytest.raises(IndexError):
        f(a, index + 60)
    kept.append(f(a, index))
    for value in kept:
        np.testing.assert_array_equal(value, a[:50])
