"""At its smallest size, each model's graph can be optimized and run, and is the same whenever it is built."""

import numpy as np
import pytest
import theano

import models as libraries_models
from profiles import check, measure, models, ways
from tests.zoo import CONVOLUTIONAL, SMALL


def test_every_model_has_a_small_size_here():
    assert set(SMALL) == {name for name in models.known() if not name.startswith("keras_")}


def runs_to_finite_values(name):
    way = ways.stock("o3")
    specification = measure.specify(models.build(name, **SMALL[name]))
    measurement = measure.optimize(specification, way)
    values = check.evaluate(specification, measurement, way)
    assert not measurement.failures
    # Models with random streams have additional updates for the streams.
    assert len(values) >= len(specification.model.outputs) + len(specification.model.updates)
    assert all(np.isfinite(value).all() for value in values.values())


@pytest.mark.thorough_cases("lstm", "gru30_gates", "transformer", "mixture", "gp", "vae")
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SMALL if name not in (*CONVOLUTIONAL, "sb_resnet56")])
def test_model_optimizes_and_runs(name):
    # No C code is used, neither for constant folding nor in calls: if the cache is cold, compiling it takes too long.
    with theano.change_flags(cxx=""):
        runs_to_finite_values(name)


@pytest.mark.thorough_cases("sb_resnet", "resnet50", "cifar_resnet")
@pytest.mark.slow
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_convolutional_model_optimizes_and_runs(name):
    runs_to_finite_values(name)


@pytest.mark.thorough_cases("sb_resnet")
@pytest.mark.slow_cases("sb_resnet", "gp")
@pytest.mark.parametrize("name", [name for name in SMALL if name != "sb_resnet56"])
def test_data_fits_the_inputs(name):
    model = models.build(name, **SMALL[name])
    assert measure.specify(model).graph().apply_nodes
    for variable, value in zip(model.inputs, model.data, strict=True):
        variable.type.filter(value, strict=True)
    for variable, update in model.updates.items():
        assert variable.type == update.type


def test_builds_are_the_same():
    first, second = models.build("vae", hidden=1), models.build("vae", hidden=1)
    assert len(first.updates) == len(second.updates)
    for one, other in zip(first.data, second.data):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(first.updates, second.updates):
        np.testing.assert_array_equal(one.get_value(), other.get_value())


@pytest.mark.parametrize(("smaller", "larger"), [({"depth": 1}, {"depth": 2})])
def test_sizes_change_the_graph(smaller, larger):
    few, many = (len(models.build("mlp", **size).updates) for size in (smaller, larger))
    assert few < many


def test_unknown_name_lists_the_known():
    with pytest.raises(models.UnknownModel, match=r"no model is named 'nope'; known are: .*resnet50"):
        models.build("nope")


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="'mlp' is registered already"):
        models.register("mlp")(lambda name: None)


def test_what_is_not_available_stays_unknown():
    models.register("unavailable", False)(lambda name: None)
    assert "unavailable" not in models.known()


@pytest.mark.parametrize("depth", [2, 12, 30])
def test_stick_breaking_depth_is_checked(depth):
    with pytest.raises(ValueError, match="9n"):
        models.build("sb_resnet", depth=depth)


def test_keras_lstm_where_keras_is():
    pytest.importorskip("keras", minversion="2.3", exc_type=ImportError)
    if "keras_lstm" not in models.known():
        pytest.skip("this Keras does not run on Theano")
    model = models.build("keras_lstm", layers=1)
    assert len(model.inputs) == len(model.data)
    assert model.updates


def test_models_of_libraries_are_built_by_name(monkeypatch):
    monkeypatch.setattr(libraries_models, "available", lambda: ["pymc3_advi", "mlp"])
    monkeypatch.setattr(libraries_models, "build", lambda name, **sizes: (name, sizes))
    assert models.of_libraries() == ["pymc3_advi"]
    assert models.build("pymc3_advi", rows=3) == ("pymc3_advi", {"rows": 3})
    assert models.build("mlp").name == "mlp"
    assert [models.dtype_of("pymc3_advi"), models.dtype_of("mlp")] == ["float64", "float32"]
    with pytest.raises(models.UnknownModel, match="sb_resnet"):
        models.build("keras_vae")
