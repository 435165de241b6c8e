"""PyMC's models in mode OPENCL, against PyTensor's default, and its sampler on both."""

from __future__ import annotations

import pytest

from profiles.pytensor import models, sampling, values


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", models.MODELS)
def test_values_are_those_of_the_default(name):
    comparison = values.compare(name, models.entry(name).small)
    assert comparison.agrees, comparison


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "size"), sampling.SIZES.items())
def test_posterior_means_are_those_of_the_default(name, size):
    draws = sampling.compare(name, size, draws=100, tune=100)
    assert draws.agrees, draws
