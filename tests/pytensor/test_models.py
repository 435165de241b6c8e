"""PyMC's models and sampler give the same results in mode OPENCL as in PyTensor's default mode."""

from __future__ import annotations

import pytest

from profiles.pytensor import densities, gallery, models, sampling, values


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sparse_process", "missing_covariates", "interpolated_prior", "replaced_data"])
def test_values_of_the_gallery_are_those_of_python(name):
    model, change = gallery.build(name)
    device, python = (
        model.logp_dlogp_function(ravel_inputs=True, mode=mode)._pytensor_function
        for mode in ("OPENCL", "FAST_COMPILE")
    )
    for _ in range(2):
        for point in densities.points_of(model, 2):
            for expected, computed in zip(python(point), device(point), strict=True):
                assert densities.difference(expected, computed) < 1e-10
        if change is not None:
            change()
