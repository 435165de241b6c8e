"""Tests of the table of other libraries' models: names, missing libraries, and what a captured call represents."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict

import numpy as np
import pytest
import theano
import theano.tensor as tt

import models
import profiles  # noqa: F401  brings optdb in before Theano
from models import registry
from models.zoo.captured import captured, from_call


def test_there_are_models_of_each_library():
    libraries = [models.entry(name).library for name in models.known()]
    assert len(libraries) >= 30
    assert set(libraries) == set(registry.LIBRARIES)


def test_each_model_says_what_it_is():
    assert [name for name in models.known() if not models.entry(name).summary] == []


def test_unknown_model_lists_those_that_are_known():
    with pytest.raises(models.UnknownModel, match="keras_vae"):
        models.build("keras_vea")


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="registered already"):
        registry.register(models.entry("keras_vae"))


def test_missing_library_is_named_with_the_cure(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert models.available() == []
    with pytest.raises(models.UnavailableLibrary, match="PyMC3: `make models`"):
        models.build("pymc3_advi")


def test_a_call_of_theano_function_becomes_a_model():
    x, state, given = tt.dvector("x"), theano.shared(np.ones(3), "state"), tt.dvector("given")
    updates = [(state, state + x * given), (state, state * 0)]

    def compile_function():
        theano.function([x], (x * given).sum(), updates=updates, givens=[(given, state)], on_unused_input="ignore")

    model = captured("name", compile_function, [np.arange(3.0)])
    function = theano.function(model.inputs, model.outputs, updates=model.updates, mode="FAST_COMPILE")
    assert function(*model.data) == [3.0]
    np.testing.assert_array_equal(state.get_value(), [1, 2, 3])


def test_a_call_without_outputs_becomes_a_model():
    state = theano.shared(1.0)
    model = from_call("name", [], [], updates=OrderedDict([(state, 2 * state)]))
    assert (model.inputs, model.outputs, list(model.updates)) == ([], [], [state])


def test_options_that_change_what_is_computed_are_refused():
    with pytest.raises(TypeError, match=r"theano\.function was called with no_default_updates"):
        from_call("name", [], [], no_default_updates=True)
