"""A file that was exported from PyTensor is right for arguments of any lengths, or refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode

import optdb
import optdb.pytensor  # registers the mode OPENCL
from optdb.pytensor import export
from optdb.runtime.exported import ShapeError
from optdb.runtime.recording import Untraceable
from tests.effort import examples
from tests.pytensor.comparing import context_of_kind

LENGTHS = (0, 1, 2, 3, 5, 16, 17, 20, 33, 64, 100, 257, 3000)
KINDS = ("cpu", "gpu")


def recurrence(sequence: Any, step: Any, *initial: Any) -> Any:
    """Return the states of a loop over a sequence."""
    first = {"initial": pt.stack(initial), "taps": list(range(-len(initial), 0))} if len(initial) > 1 else initial[0]
    return pytensor.scan(step, sequences=[sequence], outputs_info=[first], return_updates=False)


#: Operations on matrices with any number of rows; each keeps the number of dimensions.
ROWS: dict[str, Any] = {
    "tanh": pt.tanh,
    "centred": lambda x: x - x.mean(axis=0),
    "normalized": lambda x: x / pt.sqrt((x**2).sum(axis=1, keepdims=True) + 1.0),
    "softmax": lambda x: pt.special.softmax(x, axis=1),
    "reversed": lambda x: x[::-1],
    "differences": lambda x: x - pt.roll(x, 1, axis=0),
    "halves": lambda x: x[: x.shape[0] // 2],
    "odd": lambda x: x[1::2],
    "last": lambda x: x + x[-1],
    "doubled": lambda x: pt.concatenate([x, x * 2.0]),
    "cumulated": lambda x: pt.cumsum(x, axis=0) / 100.0,
    "zeroed": lambda x: pt.set_subtensor(x[1:3], 0.0),
    "increased": lambda x: pt.inc_subtensor(x[:2], 1.0),
    "added": lambda x: pt.zeros((5, x.shape[1]))[pt.arange(x.shape[0]) % 5] + x,
    "scattered": lambda x: pt.inc_subtensor(pt.zeros_like(x)[pt.arange(x.shape[0]) // 2], x),
    "numbered": lambda x: x + pt.arange(x.shape[0])[:, None] / x.shape[0],
    "turned": lambda x: x.T,
    "flat": lambda x: x.reshape((x.shape[1], x.shape[0])),
    "sorted": lambda x: pt.sort(x, axis=0),
    "similar": lambda x: x.dot(x.T).dot(x) / 100.0,
    "joined": lambda x: pt.stack([x.sum(axis=1), x.max(axis=1)], axis=1) if x.ndim else x,
    "repeated": lambda x: pt.repeat(x, 2, axis=0),
    "gradient": lambda x: pytensor.grad((pt.tanh(x) ** 2).mean(), x),
    "padded": lambda x: pt.concatenate([pt.ones((3, x.shape[1])), x]),
    "summed": lambda x: x.sum(axis=0, keepdims=True) * pt.ones((x.shape[0], 1)),
    "likelihood": lambda x: -0.5 * (x - x.mean()) ** 2 - x.shape[0] * 0.1,
    "outer": lambda x: pt.outer(x[:, 0], x[0]),
    "recurrence": lambda x: recurrence(x, lambda row, state: pt.tanh(state * 0.5 + row), pt.zeros(x.shape[1])),
}
#: Functions of a vector. A file with one example accepts vectors of at least the length in `LEAST`, if there is any:
#: sums of few elements have other kernels, and slices need their elements.
VECTORS: dict[str, Any] = {
    "elementwise": lambda v: [pt.exp(v), v[:, None] * v, v + pt.arange(v.shape[0])],
    "sums": lambda v: [v.sum(), v.mean(), (v[:, None] + v).max(axis=0), pt.cumsum(v)],
    "parts": lambda v: [v[1:] - v[:-1], v[::-2], v[-1], v[v.shape[0] - 1], v[: v.shape[0] // 2]],
    "joins": lambda v: [pt.concatenate([v, v[:3]]), pt.set_subtensor(v[2:5], 0.0), pt.repeat(v, 3)],
    "shapes": lambda v: [v.shape, v.reshape((1, v.shape[0])), pt.zeros((v.shape[0], 2)), pt.eye(v.shape[0])],
    "gradients": lambda v: [pytensor.grad((pt.tanh(v) ** 2).mean(), v)],
}
LEAST = {"parts": 17, "sums": 33, "joins": 5}


@pytest.mark.parametrize("device_kind", KINDS)
@pytest.mark.parametrize("name", VECTORS)
def test_functions_of_vectors_of_any_length(tmp_path, name, device_kind):
    v = pt.vector("v")
    outputs = VECTORS[name](v)
    device, host = (pytensor.function([v], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    (report,) = export(device, tmp_path / "function.optdb", [(np.zeros(45),)], [device_kind])
    assert report.fixed is None and not report.pinned
    loaded = optdb.load(tmp_path / "function.optdb", context_of_kind(device_kind))
    for length in (45, 33, 17, 5, 2):
        if length < LEAST.get(name, 0):
            continue
        values = np.random.default_rng(length).normal(size=length)
        results = loaded(values)
        _check(results if isinstance(results, list) else [results], host(values))


@pytest.mark.parametrize("device_kind", KINDS)
def test_reductions_divide_by_lengths(tmp_path, device_kind):
    x = pt.matrix("x")
    outputs = [x.mean(axis=0), x.var(axis=0), pt.sqrt(x.sum(axis=1) / x.shape[1] + 9.0) / x.shape[0]]
    device, host = (pytensor.function([x], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    export(device, tmp_path / "function.optdb", [(np.zeros((600, 50)),)], [device_kind])
    loaded = optdb.load(tmp_path / "function.optdb", context_of_kind(device_kind))
    for rows in (600, 601, 630):
        values = np.random.default_rng(rows).normal(size=(rows, 50))
        _check(loaded(values), host(values))


def test_lengths_that_depend_on_an_integer(tmp_path):
    """An integer argument determines lengths; comparisons of its value on the device restrict nothing."""
    v, n = pt.vector("v"), pt.lscalar("n")
    outputs = [v[:n] * 2, v * n, pt.switch(n > 5, v, -v), v[n], pt.arange(n), n + 1]
    device, host = (pytensor.function([v, n], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    path = tmp_path / "function.optdb"
    values = np.linspace(0.0, 1.0, 50)
    export(device, path, [(values, 20)])
    loaded = optdb.load(path)
    for count in (20, 30, 3):
        _check(loaded(values, count), host(values, count))
    with pytest.raises(ShapeError, match=r"n < v\.shape\[0\]"):
        loaded(values, 50)
    device(values, 25)
    export(device, path)
    _check(optdb.load(path)(values, 25), host(values, 25))


@pytest.mark.parametrize(
    ("taps", "step"),
    [(1, lambda x, state: pt.tanh(state * 0.5 + x)), (2, lambda x, one, other: one * 0.5 + other * 0.25 + x)],
)
def test_loops_of_any_length_on_processors(tmp_path, taps, step):
    v = pt.vector("v")
    states = recurrence(v, step, *[v[number] for number in range(taps)])
    outputs = [states, states[-1], pytensor.grad(states.sum(), v)]
    device, host = (pytensor.function([v], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    reports = export(device, tmp_path / "function.optdb", [(np.zeros(30),)])
    assert [report.pinned for report in reports] == [(), ("v.shape[0] == 30",)]
    loaded = optdb.load(tmp_path / "function.optdb", context_of_kind("cpu"))
    for length in (30, 50, 7, 3):
        values = np.random.default_rng(length).normal(size=length)
        _check(loaded(values), host(values))


def test_lengths_in_narrow_integers_overflow_as_they_do_elsewhere(tmp_path):
    v = pt.vector("v")
    n = v.shape[0].astype("int8")
    outputs = [pt.maximum(n, np.int8(3)) + 0, n * np.int8(2), v.shape[0].astype("int16") + np.int16(5)]
    device, host = (pytensor.function([v], outputs, mode=mode) for mode in ("OPENCL", "FAST_COMPILE"))
    path = tmp_path / "function.optdb"
    export(device, path, [(np.zeros(50),)])
    loaded = optdb.load(path)
    for length in (50, 127, 128, 200):
        _check(loaded(np.zeros(length)), host(np.zeros(length)))
    export(pytensor.function([v], v[:n], mode="OPENCL"), path, [(np.zeros(50),)])
    with pytest.raises(ShapeError, match=r"v\.shape\[0\] <= 127"):
        optdb.load(path)(np.zeros(200))


def test_a_static_length_is_a_number_in_the_kernels(tmp_path):
    x = pt.matrix("x", shape=(None, 3))
    device = pytensor.function([x], x.sum(axis=1), mode="OPENCL")
    export(device, tmp_path / "function.optdb", [(np.ones((40, 3)),)], ["cpu"])
    loaded = optdb.load(tmp_path / "function.optdb", context_of_kind("cpu"))
    np.testing.assert_array_equal(loaded(np.ones((7, 3))), np.full(7, 3.0))
    with pytest.raises(ShapeError, match=r"x\.shape\[1\] == 3"):
        loaded(np.ones((7, 4)))


_calls = st.tuples(st.sampled_from(LENGTHS), st.sampled_from((1, 2, 5, 17, 40)))


@settings(max_examples=examples(30), deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(ROWS)), min_size=1, max_size=3),
    example=_calls,
    others=st.lists(_calls, min_size=1, max_size=4),
    total=st.booleans(),
)
def test_random_functions(tmp_path_factory, names, example, others, total):
    x = pt.matrix("x")
    y = x
    for name in names:
        y = ROWS[name](y)
    outputs = [y, y.sum()] if total else [y]
    device, host = (pytensor.function([x], outputs, mode=mode) for mode in ("OPENCL", Mode("py", "fast_run")))
    path = tmp_path_factory.mktemp("files") / "function.optdb"
    values = [np.random.default_rng(3).normal(size=shape) for shape in (example, *others)]
    try:
        expected = host(values[0])
    except (ValueError, IndexError) as error:
        with pytest.raises(type(error)):
            export(device, path, [(values[0],)])
        return
    try:
        reports = export(device, path, [(values[0],)])
    except Untraceable as reason:
        assert "scattered" in names, reason  # its indices are checked
        return
    assert all(report.fixed is None for report in reports), reports
    for kind in KINDS:
        loaded = optdb.load(path, context_of_kind(kind))
        _check(loaded(values[0]), expected)
        for given_values in values[1:]:
            try:
                results = loaded(given_values)
            except ShapeError:
                continue
            _check(results, host(given_values))


def _check(results, expected):
    for value, wanted in zip(results, expected, strict=True):
        assert value.shape == wanted.shape and value.dtype == wanted.dtype
        np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-9)
