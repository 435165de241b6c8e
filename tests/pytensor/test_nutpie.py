"""With `compile_nutpie`, nutpie's sampler draws with a log density that a device computes."""

from __future__ import annotations

import sys

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.pytensorf import floatX

import optdb.pytensor
from optdb.pytensor import compile_nutpie
from optdb.pytensor.nutpie_models import _Functions
from profiles.pytensor import models

#: The library nutpie, which is installed in the environment of `make pytensor`.
nutpie = pytest.importorskip("nutpie", reason="nutpie is not installed: pip install 'optdb[nutpie]'")
pytestmark = pytest.mark.filterwarnings("ignore::optdb.pytensor.TooSmallWarning")

OBSERVED = np.random.default_rng(3).normal([1.0, -2.0, 0.5], 0.7, size=(40, 3))
#: PyTensor's Python linker, which compiles nothing.
PYTHON = "FAST_COMPILE"


def normal_model(observed=OBSERVED):
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        center = pm.Normal("center", 0, 5, dims="group")
        spread = pm.HalfNormal("spread", 2, dims="group")
        pm.Deterministic("range", center[2] - center[0])
        pm.Normal("y", center, spread, observed=observed)
    return model


def draws(compiled, **options):
    settings = {"draws": 20, "tune": 30, "chains": 2, "cores": 1, "seed": 4, "progress_bar": False, **options}
    return nutpie.sample(compiled, **settings)


def assert_same_draws(one, other, rtol):
    assert list(one.posterior) == list(other.posterior)
    for name, values in one.posterior.data_vars.items():
        others = other.posterior[name]
        assert values.dims == others.dims and all(values[dim].equals(others[dim]) for dim in values.coords)
        np.testing.assert_allclose(values, others, rtol=rtol, atol=rtol)


def test_draws_have_the_names_and_axes_of_the_model():
    drawn = draws(compile_nutpie(normal_model()), store_unconstrained=True)
    assert {name: values.dims[2:] for name, values in drawn.posterior.data_vars.items()} == {
        "center": ("group",),
        "spread": ("group",),
        "range": (),
    }
    posterior = drawn.posterior
    assert posterior["group"].values.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(posterior["range"], posterior["center"][..., 2] - posterior["center"][..., 0])
    logarithm = drawn["unconstrained_posterior"]["spread_log__"]
    assert logarithm.dims[2:] == ("group",)
    np.testing.assert_allclose(posterior["spread"], np.exp(logarithm), rtol=1e-12)
    names = drawn.sample_stats["unconstrained_parameter"].values.tolist()
    assert names == [f"{name}_{n}" for name in ("center", "spread_log__") for n in range(3)]


@pytest.mark.slow
def test_draws_are_those_of_another_mode():
    model = normal_model()
    assert_same_draws(draws(compile_nutpie(model)), draws(compile_nutpie(model, PYTHON)), rtol=1e-6)


@pytest.mark.slow
def test_chains_in_threads_draw_what_they_draw_in_turn():
    compiled = compile_nutpie(normal_model())
    one, other = (draws(compiled, chains=4, cores=cores) for cores in (1, 4))
    assert_same_draws(one, other, rtol=0)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("build", [normal_model, lambda: models.build("ar", 500)], ids=["normal", "ar"])
def test_draws_are_those_of_nutpies_own_compilation(build):
    one, other = compile_nutpie(build()), nutpie.compile_pymc_model(build())
    # Rounding errors of the first draws grow from draw to draw.
    assert_same_draws(draws(one, draws=50, tune=100), draws(other, draws=50, tune=100), rtol=1e-4)


def test_chosen_variables_are_stored():
    drawn = draws(compile_nutpie(normal_model(), PYTHON, var_names=["range"]))
    assert list(drawn.posterior) == ["center", "range"]


def test_chains_start_at_the_given_points():
    compiled = compile_nutpie(normal_model(), PYTHON, initial_points={"center": np.arange(3.0)}, jitter_rvs=[])
    start = compiled._make_initial_points(0)
    np.testing.assert_allclose(start[:3], np.arange(3.0))
    np.testing.assert_array_equal(start, compiled._make_initial_points(1))


def test_new_data_takes_part():
    with pm.Model() as model:
        observed = pm.Data("observed", np.zeros(20))
        pm.Normal("y", pm.Normal("center", 0, 100), 0.1, observed=observed)
    compiled = compile_nutpie(model)
    with model:
        pm.set_data({"observed": np.full(30, 7.0)})
    assert draws(compiled, tune=200).posterior["center"].mean() == pytest.approx(7.0, abs=0.1)


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        model = normal_model(floatX(OBSERVED))
        drawn = draws(compile_nutpie(model))
    assert np.isfinite(drawn.posterior["center"]).all()


def test_a_point_without_a_density_diverges(monkeypatch):
    model = normal_model()
    functions = _Functions(model, PYTHON, None, model.continuous_value_vars)
    point = np.zeros(6)
    assert np.isfinite(functions.logp(point)[0])
    for number in (np.inf, np.nan):
        monkeypatch.setattr(functions, "_density", lambda x, number=number: (1.0, np.full(6, number)))
        assert np.isnan(functions.logp(point)[0])

    def fails(x):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(functions, "_density", fails)
    density, gradient = functions.logp(point)
    assert np.isnan(density) and gradient.shape == (6,)


def test_discrete_variables_are_refused():
    with pm.Model() as model:
        pm.Poisson("count", 3)
        pm.Normal("x")
    with pytest.raises(TypeError, match=r"these are discrete: count\. Use pymc\.sample"):
        compile_nutpie(model)


def test_without_nutpie_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nutpie.compiled_pyfunc", None)
    with pytest.raises(ImportError, match=r"the cure: pip install 'optdb\[nutpie\]'"):
        compile_nutpie(normal_model())


def test_the_name_is_public():
    assert optdb.pytensor.compile_nutpie is compile_nutpie
