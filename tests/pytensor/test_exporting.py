"""Exported PyTensor functions give the same results without PyTensor, and unsupported functions are rejected."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

import optdb
import optdb.pytensor
from optdb.pytensor import export
from optdb.runtime.recording import Untraceable
from profiles.pytensor import densities, models
from tests.processes import run_code
from tests.pytensor.comparing import context_of_kind

VALUES = np.linspace(-1.0, 1.0, 5)


def compiled(inputs, outputs, **options):
    return pytensor.function(inputs, outputs, mode="OPENCL", **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "function.optdb"


def test_a_file_computes_what_the_function_computes(path):
    x = pt.vector("x", shape=(5,))
    f = compiled([x], [pt.exp(x).sum(), x * 2], name="density")
    export(f, path, [(VALUES,)])
    loaded = optdb.load(path)
    for point in (VALUES, VALUES[::-1], np.zeros(5)):
        for expected, value in zip(f(point), loaded(point), strict=True):
            np.testing.assert_array_equal(value, expected)
            assert value.shape == expected.shape and value.dtype == expected.dtype
    np.testing.assert_array_equal(loaded.density(x=VALUES)[1], 2 * VALUES)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_dtypes(path, dtype):
    x, y = pt.matrix("x", dtype=dtype), pt.matrix("y", dtype=dtype)
    values = np.arange(6).reshape(2, 3).astype(dtype)
    f = compiled([x, y], pt.maximum(x, y))
    export(f, path, [(values, values[::-1])])
    result = optdb.load(path)(values, np.ascontiguousarray(values[::-1]))
    np.testing.assert_array_equal(result, np.maximum(values, values[::-1]))
    assert result.dtype == dtype


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0), (1, 3), (2, 1, 3)])
def test_shapes(path, shape):
    x = pt.tensor("x", dtype="float64", shape=(None,) * len(shape))
    values = np.arange(np.prod(shape, dtype=int), dtype="float64").reshape(shape) + 1
    f = compiled([x], [pt.log(x), x.sum(), x.T * 3])
    export(f, path, [(values,)])
    for expected, value in zip(f(values), optdb.load(path)(values), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_arguments_may_have_any_strides(path):
    x = pt.matrix("x")
    f = compiled([x], x + 1)
    values = np.arange(24.0).reshape(4, 6)[:, ::2]
    export(f, path, [(values,)])
    loaded = optdb.load(path)
    for given in (values, values.copy(order="F"), np.ascontiguousarray(values)):
        np.testing.assert_array_equal(loaded(given), values + 1)


def test_results_that_are_arguments_constants_or_the_same(path):
    x = pt.vector("x")
    y = x * 2
    f = compiled([x], [x, y, y, pt.constant(np.arange(3.0))])
    export(f, path, [(VALUES,)])
    results = optdb.load(path)(VALUES)
    for value, expected in zip(results, [VALUES, 2 * VALUES, 2 * VALUES, np.arange(3.0)], strict=True):
        np.testing.assert_array_equal(value, expected)
    results[1][:] = 0
    np.testing.assert_array_equal(results[2], 2 * VALUES)


def test_shared_values_are_in_the_file_and_can_be_set(path):
    x = pt.vector("x")
    small, large = (pytensor.shared(np.ones(n), "w") for n in (5, 20_000))
    f = compiled([x], (x * small).sum() + large.sum())
    export(f, path, [(VALUES,)])
    loaded = optdb.load(path)
    assert loaded(VALUES) == f(VALUES)
    loaded.set("w", np.full(5, 2.0))
    small.set_value(np.full(5, 2.0))
    assert loaded(VALUES) == f(VALUES)
    loaded.set("w_2", np.full(20_000, 0.5))
    large.set_value(np.full(20_000, 0.5))
    assert loaded(VALUES) == f(VALUES) == pytest.approx(10_000)


@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
def test_loops(path, device_kind):
    x = pt.vector("x", shape=(5,))
    states = pytensor.scan(
        lambda number, state: pt.tanh(state * 0.5 + number),
        sequences=[x],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )
    f = compiled([x], [states, pytensor.grad(states.sum(), x)])
    export(f, path, [(VALUES,)])
    loaded = optdb.load(path, context_of_kind(device_kind))
    for expected, value in zip(f(VALUES), loaded(VALUES), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-14)


def test_the_file_does_not_follow_the_function(path):
    x, w = pt.vector("x"), pytensor.shared(np.ones(5), "w")
    f = compiled([x], (x * w).sum())
    export(f, path, [(VALUES + 2,)])
    w.set_value(np.zeros(5))
    assert f(VALUES) == 0 and optdb.load(path)(VALUES + 2) == pytest.approx(10.0)


def test_other_shapes_than_the_examples_are_refused(path):
    x = pt.vector("x")
    w = pytensor.shared(np.ones(5), "w", shape=(None,))
    f = compiled([x], (x * w).sum())
    assert export(f, path, [(VALUES,)])[0].pinned == ("x.shape[0] == 5",)
    with pytest.raises(ValueError, match=r"was not exported for x of shape \(9,\)"):
        optdb.load(path)(np.zeros(9))


def test_the_latest_plan_of_a_shape_is_written(path):
    """If no examples are given, the last call of a shape is exported, even after calls with other shapes and values."""
    x = pt.vector("x")
    f = compiled([x], pt.exp(x))
    for values in (np.zeros(5), np.zeros(7), np.ones(5)):
        f(values)
    export(f, path, [(VALUES,)])
    np.testing.assert_allclose(optdb.load(path)(VALUES), f(VALUES), rtol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.MODELS)
def test_densities(path, name):
    density = densities.compiled(name, models.entry(name).small, "opencl")
    export(density.function, path, [(density.points[0],)])
    loaded = optdb.load(path)
    for point in density.points:
        for expected, value in zip(density.function(point), loaded(point), strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.slow
def test_a_file_runs_where_pytensor_is_not_imported(path):
    density = densities.compiled("logistic", 50, "opencl", count=1)
    export(density.function, path, [(density.points[0],)])
    code = f"""
import sys, numpy as np, optdb
for name in ("pytensor", "pymc", "numba", "theano"):
    sys.modules[name] = None
logp, dlogp = optdb.load({str(path)!r})(np.array({density.points[0].tolist()}))
print(float(logp), dlogp.shape)
"""
    done = run_code(code)
    assert done.returncode == 0, done.stderr
    logp, shape = done.stdout.split(maxsplit=1)
    assert float(logp) == density.function(density.points[0])[0] and shape.strip() == "(101,)"


@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
def test_a_file_updates_its_shared_values(path, device_kind):
    """The next value of one variable is another variable's current value, and both variables are results."""
    x = pt.vector("x")
    w, before = pytensor.shared(np.ones(5), "w"), pytensor.shared(np.zeros(5), "before")
    step = compiled([x], [w, before, (w * x).sum()], updates=[(w, w - 0.5 * x), (before, w)], name="step")
    reports = export({"step": step, "read": compiled([], w * 2)}, path, {"step": [(VALUES,)], "read": [()]})
    assert [report.function for report in reports] == ["step", "step", "read", "read"]
    loaded = optdb.load(path, context_of_kind(device_kind))
    for number in range(3):
        for expected, value in zip(step(VALUES + number), loaded(VALUES + number), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-12)
        for var in (w, before):
            np.testing.assert_allclose(loaded.get(var.name), var.get_value(), rtol=1e-12)
        np.testing.assert_allclose(loaded.read(), 2 * w.get_value(), rtol=1e-12)


def test_several_shapes_and_both_kinds_of_devices(path):
    x = pt.matrix("x")
    f = compiled([x], [pt.exp(x).sum(axis=0), x.dot(x.T)])
    shapes = [(3, 2), (40, 30), (3, 2)]
    reports = export(f, path, [(np.ones(shape),) for shape in shapes])
    assert [(report.shapes[0], report.covered) for report in reports if report.device_kind == "gpu"] == [
        ((3, 2), False),
        ((40, 30), False),
        ((3, 2), True),
    ]
    assert all(report.fixed is None for report in reports)
    for device_kind in ("cpu", "gpu"):
        loaded = optdb.load(path, context_of_kind(device_kind))
        for shape in shapes:
            values = np.linspace(-1.0, 1.0, np.prod(shape)).reshape(shape)
            for expected, value in zip(f(values), loaded(values), strict=True):
                np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("allow", [None, True])
def test_arguments_are_cast_as_the_function_casts_them(path, allow):
    x, w = pt.vector("x", dtype="float32"), pytensor.shared(np.zeros(5, "float32"), "w")
    f = compiled([x], [], updates=[(w, w + x)], allow_input_downcast=allow)
    export(f, path, [(VALUES.astype("float32"),)])
    loaded = optdb.load(path)
    if allow is None:
        with pytest.raises(TypeError, match=r"call, argument x: .*\nThe cure: cast it first"):
            loaded(VALUES)
        return
    assert loaded(VALUES) == f(VALUES) == []
    np.testing.assert_array_equal(loaded.get("w"), w.get_value())


def test_the_latest_calls_are_the_examples(path):
    x = pt.vector("x")
    f = compiled([x], x * 2)
    with pytest.raises(ValueError, match=r"call needs an example call.*\nThe cure: call it once before"):
        export(f, path)
    f(VALUES)
    f(np.ones(3))
    f(np.zeros(3))
    reports = export(f, path, device_kinds=["cpu"])
    assert [report.shapes for report in reports] == [((3,),), ((5,),)]
    np.testing.assert_array_equal(optdb.load(path, context_of_kind("cpu"))(VALUES), 2 * VALUES)


def test_a_call_computes_nothing_for_the_file(path):
    """Exporting changes neither the function nor its shared variables."""
    x, w = pt.scalar("x"), pytensor.shared(1.0, "w")
    f = compiled([x], w * x, updates=[(w, w + x)])
    export(f, path, [(1.0,)])
    assert w.get_value() == 1.0 and not f.vm.jit_fn.function.traced_calls


def test_a_function_of_another_mode_is_refused(path):
    x = pt.vector("x")
    f = pytensor.function([x], x + 1, mode="FAST_COMPILE")
    with pytest.raises(TypeError, match=r"is not of mode OPENCL: compile it with pytensor\.function"):
        export(f, path, [(VALUES,)])
    with pytest.raises(TypeError, match="is not of mode OPENCL"):
        export(len, path, [(VALUES,)])
    assert not path.exists()


@pytest.mark.parametrize(
    ("examples", "complaint"),
    [
        ([()], r"call is missing its argument x, a vector of float64"),
        ([(VALUES, VALUES)], r"call takes 1 arguments, \(x: float64\[:\]\), but 2 were given"),
        ([{"y": VALUES}], "call has no argument 'y'"),
        ([(np.ones((2, 2)),)], r"argument x: expected a vector of float64, got an array of 2 dimensions"),
        ([(np.array(["a"]),)], "argument x: expected a vector of float64, which cannot hold an array of <U1"),
        ([(np.array([1j]),)], "which cannot hold an array of complex128 without loss.\nThe cure"),
        ([(np.array([None]),)], "which cannot hold an array of object"),
        (VALUES, r"a float64 is not a call.\nThe cure, for one call with x and y: examples=\[\(x, y\)\]"),
        ((VALUES, VALUES), "a ndarray is not a call"),
        (1.0, "a float is not a call"),
    ],
)
def test_an_example_that_is_no_call_is_refused(path, examples, complaint):
    x = pt.vector("x")
    f = compiled([x], x + 1)
    with pytest.raises(TypeError, match=complaint):
        export(f, path, examples)
    assert not path.exists()


def test_an_example_of_another_static_shape_is_refused(path):
    x = pt.vector("x", shape=(4,))
    with pytest.raises(TypeError, match=r"x has shape \(4,\), but got \(5,\)"):
        export(compiled([x], x + 1), path, [(VALUES,)])


def test_checks_are_refused(path):
    x = pt.vector("x")
    f = compiled([x], Assert("x must be positive")(x, (x > 0).all()) * 2)
    with pytest.raises(Untraceable, match="checks values and raises errors"):
        export(f, path, [(VALUES + 2,)])


def test_lengths_that_depend_on_values_are_refused(path):
    x, n, shared = pt.vector("x"), pt.lvector("n"), pytensor.shared(np.int64(2), "shared")
    with pytest.raises(Untraceable, match="lengths depend on the values of arguments"):
        export(compiled([x, n], x[: n[0]] * 2), path, [(VALUES, [2])])
    with pytest.raises(Untraceable, match="lengths depend on the value of a shared variable"):
        export(compiled([x], x[:shared] * 2), path, [(VALUES,)])
    assert not path.exists()


def test_steps_of_the_host_are_named(path):
    x = pt.matrix("x")
    f = compiled([x], pt.linalg.eig(x)[0].real)
    with pytest.raises(Untraceable, match="steps that run on the host"):
        export(f, path, [(np.eye(3),)])
