"""The device runs Scans with each kind of state, sequence and result, and their gradients."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.raise_op import Assert
from pytensor.scan.utils import until

import optdb.pytensor
from optdb.pytensor import loops
from tests.pytensor.comparing import compare, mode_of_kind, sort_on_host

RNG = np.random.default_rng(11)
T = 7
XS = RNG.normal(size=(T, 3))
x = pt.matrix("x")
v = pt.vector("v")
n = pt.lscalar("n")


def scan(step, **kwargs):
    return pytensor.scan(step, return_updates=False, **kwargs)


def loops_of(f):
    """Return the loops of a function on the device, for the shapes of its last calls."""
    works = [work for _, traced in f.vm.jit_fn.function.traced_calls for work in traced.device_work]
    return [work for work in works if "steps of" in work]


def compared(inputs, outputs, *calls, least=1, **kwargs):
    f = compare(inputs, outputs, *calls, **kwargs)
    assert len(loops_of(f)) >= least
    return f


def with_gradients(total, wrt):
    return [total, *pytensor.grad(total, wrt)]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_state_and_its_gradient(kind):
    states = scan(lambda row, h: pt.tanh(h * 0.5 + row), sequences=[x], outputs_info=[pt.zeros(3)])
    compared([x], [states, *with_gradients((states**2).sum(), [x])], [XS], mode=mode_of_kind(kind))


@pytest.mark.parametrize("taps", [[-1], [-2], [-1, -3], [-3, -2, -1]])
def test_earlier_states_and_their_gradients(taps):
    first = pt.matrix("first")
    states = scan(
        lambda row, *before: pt.tanh(sum(before) * 0.4 + row),
        sequences=[x],
        outputs_info=[{"initial": first, "taps": taps}],
    )
    start = RNG.normal(size=(-min(taps), 3))
    compared([x, first], [states, *with_gradients(states[-1].sum() + states.prod(), [x, first])], [XS, start])


@pytest.mark.parametrize("taps", [[-1], [-1, -3]])
def test_last_states_alone(taps):
    first = pt.matrix("first")
    states = scan(
        lambda row, *before: pt.tanh(sum(before) * 0.4 + row),
        sequences=[x],
        outputs_info=[{"initial": first, "taps": taps}],
    )
    start = RNG.normal(size=(-min(taps), 3))
    for kept in (states[-1], states[-2:], states[3:]):
        compared([x, first], kept, [XS, start])


def test_sequences_with_taps():
    results = scan(
        lambda before, now, later: before * 2 + now - later,
        sequences=[{"input": x, "taps": [-1, 0, 2]}],
        outputs_info=[None],
    )
    compared([x], [results, *with_gradients((results**2).sum(), [x])], [XS], least=0)


@pytest.mark.parametrize("backwards", [False, True])
def test_sequences_of_other_orders(backwards):
    states = scan(
        lambda row, other, h: h * 0.5 + pt.sin(row) * other,
        sequences=[x.T, x.T[:, ::-1]],
        outputs_info=[pt.zeros(T)],
        go_backwards=backwards,
    )
    compared([x], [states, *with_gradients(states.sum(), [x])], [XS])


def test_states_swap_and_pass_through():
    def step(row, a, b):
        return b, a, row

    outputs = scan(step, sequences=[x], outputs_info=[x[0], x[1], None])
    compared([x], [outputs[0], outputs[1], outputs[2], outputs[0][-1]], [XS])


def test_results_that_do_not_depend_on_the_step():
    results = scan(lambda row, h: (h + row.sum(), pt.exp(v)), sequences=[x], outputs_info=[pt.zeros(()), None])
    compared([x, v], results, [XS, XS[0]])


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "float32"])
def test_dtypes_of_states(dtype):
    rows = pt.matrix("rows", dtype=dtype)

    def step(row, h):
        return pt.cast(pt.switch(pt.gt(row, h), row, pt.cast(h + row, dtype)), dtype)

    states = scan(step, sequences=[rows], outputs_info=[rows[0]])
    given = (RNG.normal(size=(T, 3)) * 3).astype(dtype)
    compared([rows], [states, states[-1]], [given], rtol=1e-6)


def test_products_in_steps():
    w, sequence = pt.matrix("w"), pt.tensor3("sequence")
    states = scan(lambda row, h: pt.tanh(row + h @ w), sequences=[sequence], outputs_info=[pt.zeros((20, 20))])
    compared(
        [sequence, w],
        with_gradients((states[-1] ** 2).sum(), [w, sequence]),
        [RNG.normal(size=(5, 20, 20)), RNG.normal(size=(20, 20)) * 0.1],
    )


def test_products_without_a_state_are_computed_before_the_loop():
    w, sequence = pt.matrix("w"), pt.tensor3("sequence")
    states = scan(
        lambda row, h: pt.tanh((pt.sin(row) @ w)[:, ::-1] + row + h @ w),
        sequences=[sequence],
        outputs_info=[pt.zeros((20, 20))],
        go_backwards=True,
    )
    given = [RNG.normal(size=(5, 20, 20)), RNG.normal(size=(20, 20)) * 0.1]
    f = compared([sequence, w], states, given)
    (loop,) = loops_of(f)
    assert loop.count("Product") == 1
    compared([sequence, w], with_gradients((states[-1] ** 2).sum(), [w, sequence]), given)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_steps_of_a_gradient_compute_no_sum_and_copy_no_slice(kind):
    width = 48
    w, sequence = pt.matrix("w"), pt.tensor3("sequence", shape=(None, 50, width))

    def step(row, h, w):
        gates = row @ w + h @ w
        kept, into, new = (gates[:, width * number : width * (number + 1)] for number in range(3))
        return pt.sigmoid(kept) * h + pt.sigmoid(into) * pt.tanh(new)

    states = scan(step, sequences=[sequence], outputs_info=[pt.zeros((50, width))], non_sequences=[w])
    given = [RNG.normal(size=(5, 50, width)), RNG.normal(size=(width, 3 * width)) * 0.1]
    f = compared([sequence, w], with_gradients((states[-1] ** 2).sum(), [w]), given, least=2, mode=mode_of_kind(kind))
    for loop in loops_of(f):
        assert loop.count("Product") == 1
        assert loop.count(";") <= 2


@pytest.mark.thorough_cases("float32-cpu")
@pytest.mark.parametrize(
    ("dtype", "kind"), [("float64", "cpu"), ("float32", "cpu"), ("float32", "gpu"), ("int32", "cpu")]
)
def test_sums_that_no_step_reads(dtype, kind):
    rows = pt.tensor3("rows", dtype=dtype)
    starts = [pt.zeros((), dtype), pt.ones(30, dtype), pt.zeros((20, 30), dtype), pt.zeros((20, 30), dtype)]

    def step(row, total, columns, whole, h):
        h = h * pt.cast(2, dtype) - row
        return pt.add(pt.sum(h, dtype=dtype), total), pt.add(columns, h.sum(0, dtype=dtype)), whole + h + row, h

    sums = scan(step, sequences=[rows], outputs_info=starts, n_steps=n)
    outputs = [*(states[-1] for states in sums[:3]), sums[1][-2:]]
    values = (RNG.normal(size=(6, 20, 30)) * 9).astype(dtype)
    f = compared([rows, n], outputs, [values, 6], [values, 2], [values, 1], rtol=1e-9, mode=mode_of_kind(kind))
    assert "Reduction" not in loops_of(f)[0]
    whole = scan(step, sequences=[rows], outputs_info=starts, n_steps=n)[2]
    compared([rows, n], [whole, whole[-1]], [values, 6], rtol=1e-9, mode=mode_of_kind(kind))


def test_other_numbers_of_steps_and_lengths():
    states = scan(lambda row, h: h * 0.5 + row, sequences=[x], outputs_info=[pt.zeros(3)], n_steps=n)
    rows = RNG.normal(size=(9, 3))
    compared([x, n], [states, states[-1]], [rows, 9], [rows, 4], [XS, 4], [XS, 1])


def test_states_of_arrays_without_spare_rows():
    code = """
import numpy as np, pytensor, pytensor.tensor as pt
import optdb.pytensor
from optdb.pytensor import loops
from pytensor.compile.mode import Mode

loops.LEAST_WORK = 0
x, n = pt.matrix("x"), pt.lscalar("n")
values = np.random.default_rng(0).normal(size=(5, 3))
for initial, taps in (pt.zeros(3), [-1]), (pt.ones((2, 3)), [-2]):
    state = {"initial": initial, "taps": taps}
    states = pytensor.scan(lambda row, h: h * 0.5 + row, [x], [state], n_steps=n, return_updates=False)
    modes = "OPENCL", Mode("py", None)
    device, host = (pytensor.function([x, n], [states[-1], states[-1:]], mode=mode) for mode in modes)
    for steps in (1, 2, 3, 5):
        for computed, expected in zip(device(values, steps), host(values, steps)):
            assert computed.shape == expected.shape
            np.testing.assert_allclose(computed, expected)
"""
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    env = os.environ | {"PYTENSOR_FLAGS": f"{flags},scan__allow_output_prealloc=False".strip(",")}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=env)


def test_too_short_sequences_raise():
    states = scan(lambda row, h: h * 0.5 + row, sequences=[x], outputs_info=[pt.zeros(3)], n_steps=n)
    f = pytensor.function([x, n], states, mode="OPENCL")
    with pytest.raises(ValueError, match="steps"):
        f(XS, T + 1)
    with pytest.raises(IndexError, match="steps"):
        f(XS, -1)


@pytest.mark.parametrize("outputs", [lambda states: states, lambda states: states[-1:]])
def test_no_steps(outputs):
    states = scan(lambda row, h: h * 0.5 + row, sequences=[x], outputs_info=[pt.zeros(3)], n_steps=n)
    compare([x, n], outputs(states), [XS, 0], [XS, 3])


def test_powers_by_a_number_of_steps():
    results = scan(lambda power, base: power * base, outputs_info=[pt.ones_like(v)], non_sequences=[v], n_steps=n)
    compared([v, n], [results[-1], pytensor.grad(results[-1].sum(), v)], [XS[0], 6])


def test_loops_in_loops():
    def outer(row, h):
        inner = scan(lambda number, total: pt.tanh(total + number * row), sequences=[v], outputs_info=[h])
        return inner[-1]

    states = scan(outer, sequences=[x], outputs_info=[pt.zeros(3)])
    compared([x, v], [states, *with_gradients((states**2).sum(), [x, v])], [XS, XS[0]])


@pytest.mark.filterwarnings("ignore:Scan return signature")
def test_updates_of_shared_variables_in_loops():
    def updated(mode):
        shared = pytensor.shared(np.ones(3))
        outputs, updates = pytensor.scan(
            lambda row: ((shared * row).sum(), {shared: shared * 0.5 + row}), sequences=[x], return_updates=True
        )
        f = pytensor.function([x], outputs, updates=updates, mode=mode)
        return [f(XS) for _ in range(4)], shared.get_value()

    computed, expected = updated("OPENCL"), updated(Mode("py", None))
    np.testing.assert_allclose(computed[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(computed[1], expected[1], rtol=1e-12)


def test_checks_in_steps():
    positive = Assert("not positive")
    states = scan(lambda row, h: h + positive(row, (row > 0).all()), sequences=[x], outputs_info=[pt.zeros(3)])
    f = compared([x], states, [abs(XS)])
    bad = abs(XS)
    bad[4, 1] = -1.0
    with pytest.raises(AssertionError, match="not positive"):
        f(bad)
    np.testing.assert_allclose(f(abs(XS))[0], np.cumsum(abs(XS), axis=0))


def test_indices_that_depend_on_the_step():
    positions = pt.lvector("positions")
    states = scan(lambda p, h, v: h * 0.5 + v[p], sequences=[positions], outputs_info=[pt.zeros(())], non_sequences=[v])
    compared([positions, v], [states, pytensor.grad(states.sum(), v)], [np.array([0, 2, -1, 1]), XS[0]])


def test_large_steps():
    """Each step has more elements than one work item of a CPU computes."""
    rows = pt.matrix("rows")
    states = scan(lambda row, h: pt.tanh(h - h.sum() / 9000.0 + row), sequences=[rows], outputs_info=[pt.zeros(9000)])
    compared([rows], [states[-1], pytensor.grad(states.sum(), rows)], [RNG.normal(size=(3, 9000))], rtol=1e-9)


def test_loops_without_elements():
    states = scan(lambda row, h: h * 0.5 + row, sequences=[x], outputs_info=[pt.zeros_like(x[0])])
    compare([x], [states, states.sum()], [np.zeros((4, 0))])


def test_deep_steps():
    def step(row, h):
        for _ in range(60):
            h = pt.tanh(h * 0.9 + row)
        return h

    states = scan(step, sequences=[x], outputs_info=[pt.zeros(3)])
    compared([x], states, [XS])


def test_what_stays_on_the_host():
    doubled = scan(lambda value: (value * 2, until(value > 50)), outputs_info=[v[0]], n_steps=1024)
    f = compare([v], doubled[-1], [np.ones(1)], on_host=1)
    assert "has a stop condition" in optdb.pytensor.explain(f)
    sorted_rows = scan(lambda row, h: sort_on_host(row) + h, sequences=[x], outputs_info=[pt.zeros(3)])
    f = compare([x], sorted_rows, [XS], on_host=1)
    assert "a step contains Sort" in optdb.pytensor.explain(f)


def test_loops_that_take_less_time_on_the_host(monkeypatch):
    monkeypatch.setattr(loops, "LEAST_WORK", 100_000)
    w = pt.matrix("w")
    states = scan(lambda h, w: pt.tanh(h @ w), outputs_info=[pt.ones((20, 20))], non_sequences=[w], n_steps=5)
    weights = RNG.normal(size=(20, 20))
    f = compare([w], states[-1], [weights], mode=mode_of_kind("gpu"), on_host=1)
    assert "in less time than its launches take" in optdb.pytensor.explain(f)
    compared([w], states[-1], [weights])
    monkeypatch.setattr(loops, "MOST_LAUNCHES", 9)
    f = compare([w], states[-1], [weights], on_host=1)
    assert "10 launches" in optdb.pytensor.explain(f)


@pytest.mark.parametrize("merge_launches", ["always", "never"])
def test_small_steps_are_repeated_within_a_kernel(merge_launches):
    states = scan(lambda row, h: pt.tanh(h * 0.5 + row), sequences=[x], outputs_info=[pt.zeros(3)], n_steps=n)
    f = pytensor.function([x, n], states, mode="OPENCL")
    f.vm.jit_fn.function._options = f.vm.jit_fn.function._options._replace(merge_launches=merge_launches)
    for steps in (7, 5, 7):
        state = np.zeros(3)
        for row, computed in zip(XS, f(XS, steps), strict=False):
            state = np.tanh(state * 0.5 + row)
            np.testing.assert_allclose(computed, state, rtol=1e-12)
    assert all("in one kernel" in work for work in loops_of(f))


def test_calls_in_a_row():
    """In repeated calls, a plan repeats the loop and merges the loop's launches."""
    states = scan(lambda row, h: pt.tanh(h * 0.5 + row), sequences=[x], outputs_info=[pt.zeros(3)])
    outputs = with_gradients((states**2).sum(), [x])
    f = pytensor.function([x], outputs, mode="OPENCL")
    g = pytensor.function([x], outputs, mode=Mode("py", None))
    f.vm.jit_fn.function._options = f.vm.jit_fn.function._options._replace(merge_launches="always")
    for number in range(12):
        for computed, expected in zip(f(XS + number), g(XS + number), strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-10, atol=1e-12)
