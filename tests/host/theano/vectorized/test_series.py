"""Digamma and trigamma of few or many numbers, near bounds of the series, and of numbers that C does not support."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from optdb.host.theano.vectorized import series

X = np.concatenate([np.logspace(-320, 300, 400), np.logspace(-6, 2, 400), [1e-5, 1e-4, 5.0, 8.5, np.inf, 5e-324]])
EXACT = {series.digamma: special.psi, series.trigamma: lambda x: special.polygamma(1, x)}


@pytest.mark.parametrize("function", EXACT, ids=lambda function: function.__name__)
def test_few_numbers_are_computed_as_many_are(function):
    with np.errstate(all="ignore"):
        many = function(special, X)
        few = np.concatenate([function(special, part) for part in np.array_split(X, len(X) // 4)])
    np.testing.assert_allclose(few, many, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("function", EXACT, ids=lambda function: function.__name__)
def test_they_are_close_to_the_exact_functions(function):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(function(special, X), EXACT[function](X), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("count", [1, 50])
@pytest.mark.parametrize("function", EXACT, ids=lambda function: function.__name__)
def test_numbers_that_are_not_positive_are_scipys(function, count):
    x = np.tile([-1.5, -0.5, np.nan, 2.0], count)
    with np.errstate(all="ignore"):
        result, exact = function(special, x), EXACT[function](x)
    np.testing.assert_array_equal(result[x < 0], exact[x < 0])
    assert np.isnan(result[np.isnan(x)]).all()
    np.testing.assert_allclose(result[x > 0], exact[x > 0], rtol=1e-7)


@pytest.mark.parametrize("function", EXACT, ids=lambda function: function.__name__)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (7, 9)])
def test_shapes(function, shape):
    assert np.shape(function(special, np.ones(shape))) == shape
