"""Each of the twelve models has seeded data, the right sizes, and gradients that match its log density."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.pytensor import densities, models, sides

STEP = 1e-6


@pytest.mark.parametrize("name", models.MODELS)
def test_the_gradient_is_that_of_the_log_density(name):
    density = densities.compiled(name, models.entry(name).small, "python", count=1)
    [point] = density.points
    logp, gradient = density.function(point)
    assert np.isfinite(logp) and np.shape(gradient) == point.shape
    direction = np.random.default_rng(1).normal(size=point.size)
    above, below = (density.function(point + sign * STEP * direction)[0] for sign in (1, -1))
    slope = (above - below) / (2 * STEP)
    np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", models.MODELS)
def test_data_is_the_same_at_each_build_and_grows_with_the_size(name):
    one, again, more = (models.build(name, size) for size in (20, 20, 200))

    def data(model):
        return [np.asarray(model.rvs_to_values[variable].data) for variable in model.observed_RVs]

    for x, y, larger in zip(data(one), data(again), data(more), strict=True):
        np.testing.assert_array_equal(x, y)
        assert larger.size == 10 * x.size


def test_points_are_the_same_at_each_call_and_differ():
    model = models.build("mixture", 20)
    (a, b), again = densities.points_of(model, 2), densities.points_of(model, 2)
    np.testing.assert_array_equal([a, b], again)
    assert not np.array_equal(a, b)


def test_an_unknown_model_lists_the_known():
    with pytest.raises(KeyError, match="no model is named 'nope'; known are: radon, logistic"):
        models.build("nope")


@pytest.mark.parametrize(
    ("expected", "computed", "distance"),
    [
        ([1.0, 4.0], [1.0, 3.0], 0.25),
        ([0.0, 0.0], [0.0, 0.5], 0.5),
        ([np.nan, np.inf, 2.0], [np.nan, np.inf, 2.0], 0.0),
        ([np.nan], [np.nan], 0.0),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([1.0], [np.nan], np.inf),
        ([1.0], [1.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_differences_are_relative_to_the_largest_number(expected, computed, distance):
    assert densities.difference(expected, computed) == distance


def test_a_side_is_available_where_its_modules_are():
    assert sides.available("python")
    assert sides.available(sides.DEFAULT)
    assert not sides._is_installed("no_such_package.module")
    assert not sides._is_installed("json.no_such_module")
    assert sides.load("python") == "FAST_COMPILE"
