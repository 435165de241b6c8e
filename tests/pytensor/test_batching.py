"""One call of `evaluate_many` computes the results of many calls."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from optdb.pytensor import evaluate_many
from optdb.pytensor.compiled import _BATCHED
from profiles.pytensor import densities, models

POINTS = np.linspace(-1.0, 1.0, 15).reshape(3, 5)


def compiled(inputs, outputs, **options):
    return pytensor.function(inputs, outputs, mode="OPENCL", **options)


def assert_like_calls(f, *points, rtol=1e-12):
    many = evaluate_many(f, *points)
    one = [f(*point) for point in zip(*points, strict=True)]
    if isinstance(many, np.ndarray):
        many, one = [many], [[value] for value in one]
    assert len(many) == len(one[0])
    for number, values in enumerate(many):
        expected = np.array([values_of_call[number] for values_of_call in one])
        assert values.shape == expected.shape and values.dtype == expected.dtype
        np.testing.assert_allclose(values, expected, rtol=rtol)


def test_results_are_those_of_calls():
    x = pt.vector("x")
    f = compiled([x], [pt.exp(x).sum(), x * 2, x[1:].reshape((2, 2)), pt.special.softmax(x)])
    assert_like_calls(f, POINTS)
    assert_like_calls(f, POINTS[:1])
    assert_like_calls(f, np.concatenate([POINTS] * 4))


def test_a_single_result_stays_single():
    x = pt.vector("x")
    assert_like_calls(compiled([x], x.sum()), POINTS)


def test_several_arguments_scalars_among_them():
    x, n, m = pt.vector("x"), pt.lscalar("n"), pt.matrix("m")
    f = compiled([x, n, m], [m @ x * n, m.T.sum(axis=0), n + 1])
    assert_like_calls(f, POINTS, np.arange(3), np.random.default_rng(0).normal(size=(3, 2, 5)))


def test_results_that_depend_on_no_argument_come_once_for_each_point():
    x, w = pt.vector("x"), pytensor.shared(np.arange(4.0), "w")
    f = compiled([x], [w * 2, x.sum()], on_unused_input="ignore")
    assert_like_calls(f, POINTS)
    unused = compiled([x], [w + 1], on_unused_input="ignore")
    assert_like_calls(unused, POINTS)


def test_no_points_give_empty_results():
    x = pt.vector("x")
    f = compiled([x], [x.max(), x * 2])
    largest, doubled = evaluate_many(f, np.zeros((0, 5)))
    assert largest.shape == (0,) and doubled.shape == (0, 5)


def test_shared_values_are_those_of_the_call():
    x, w = pt.vector("x"), pytensor.shared(np.ones(5), "w")
    f = compiled([x], (x * w).sum())
    assert_like_calls(f, POINTS)
    w.set_value(np.arange(5.0))
    assert_like_calls(f, POINTS)
    np.testing.assert_allclose(evaluate_many(f, POINTS), POINTS @ np.arange(5.0))


def test_points_may_be_lists_of_arrays_of_any_strides():
    x = pt.vector("x")
    f = compiled([x], x * 2)
    wide = np.arange(30.0).reshape(3, 10)
    np.testing.assert_array_equal(evaluate_many(f, wide[:, ::2]), 2 * wide[:, ::2])
    np.testing.assert_array_equal(evaluate_many(f, list(wide[:, ::2])), 2 * wide[:, ::2])


@pytest.mark.usefixtures("alone")
def test_a_function_compiles_its_batch_once_and_releases_it():
    x = pt.vector("x")
    f = compiled([x], x + 1)
    evaluate_many(f, POINTS)
    batched = _BATCHED[f.vm.jit_fn]
    evaluate_many(f, POINTS[:2])
    assert _BATCHED[f.vm.jit_fn] is batched
    kept = weakref.ref(batched)
    del batched, f
    gc.collect()
    assert kept() is None


@pytest.mark.slow
@pytest.mark.parametrize("name", models.MODELS)
def test_densities(name):
    density = densities.compiled(name, models.entry(name).small, "opencl", count=4)
    calls = [density.function(point) for point in density.points]
    logp, dlogp = evaluate_many(density.function, density.points)
    assert densities.difference([call[0] for call in calls], logp) <= 1e-12
    assert densities.difference([call[1] for call in calls], dlogp) <= 1e-10


@pytest.mark.parametrize(
    ("points", "complaint"),
    [
        ((), r"takes 2 arguments \(x, y\), but got 0"),
        ((POINTS,), "got 1"),
        ((POINTS, POINTS[0]), "y needs an array of 2 axes, including 1 batch axes"),
        ((POINTS, POINTS.astype(complex)), "y is of float64, but got values of complex128"),
    ],
)
def test_wrong_arguments_are_refused(points, complaint):
    x, y = pt.vectors("x", "y")
    with pytest.raises(TypeError, match=complaint):
        evaluate_many(compiled([x, y], x + y), *points)


def test_different_numbers_of_points_are_refused():
    x, y = pt.vectors("x", "y")
    with pytest.raises(ValueError, match="different numbers of points: 3, 2"):
        evaluate_many(compiled([x, y], x + y), POINTS, POINTS[:2])


def test_updates_and_other_modes_are_refused():
    x, w = pt.vector("x"), pytensor.shared(0.0, "w")
    with pytest.raises(TypeError, match="each call updates w"):
        evaluate_many(compiled([x], x + w, updates=[(w, w + 1)]), POINTS)
    with pytest.raises(TypeError, match="is not of mode OPENCL"):
        evaluate_many(pytensor.function([x], x + 1, mode="FAST_COMPILE"), POINTS)
    with pytest.raises(TypeError, match="has no arguments"):
        evaluate_many(compiled([], w * 2), POINTS)
