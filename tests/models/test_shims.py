"""The shims give what is missing, leave alone what is there, and say that a stand-in is one."""

from __future__ import annotations

import collections
import collections.abc
import inspect
import sys
import types

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor import signal
from theano.tensor.signal.pool import Pool

import profiles  # noqa: F401  brings optdb in before Theano
from models import shims
from models.shims import aliases, stand_ins
from models.shims.minibatches import repair_minibatches


@pytest.fixture(autouse=True)
def undone():
    """Take away afterwards what the shims have set."""
    touched = (collections, np, np.testing, inspect, signal)
    names = [set(vars(module)) for module in touched]
    modules = set(sys.modules)
    yield
    for module, before in zip(touched, names):
        for name in set(vars(module)) - before:
            delattr(module, name)
    for name in set(sys.modules) - modules:
        if name.startswith(("arviz", "xarray")) or name.endswith("downsample"):
            del sys.modules[name]


def test_names_of_older_pythons_and_numpys():
    shims.install()
    assert collections.Iterable is collections.abc.Iterable
    assert np.asscalar(np.array([3])) == 3
    assert all(name in vars(np) for name in ("int", "bool", "float", "product"))
    assert inspect.getargspec(lambda a, *b, **d: 0).args == ["a"]
    assert "Tester" in vars(np.testing)
    with pytest.raises(NotImplementedError, match="pytest"):
        aliases._Tester().test()


def test_what_is_there_is_left_alone(monkeypatch):
    kept = object()
    monkeypatch.setattr(np, "asscalar", kept, raising=False)
    monkeypatch.setitem(sys.modules, "arviz", kept)
    shims.install()
    shims.install()
    assert np.asscalar is kept
    assert sys.modules["arviz"] is kept


def test_getargspec_is_what_it_was():
    def function(a, b=2, *args, c=3, **kwargs):
        pass

    assert tuple(aliases._getargspec(function)) == (["a", "b"], "args", "kwargs", (2,))


def test_downsample_is_max_pooling_as_theano_07_had_it():
    shims.install()
    from theano.tensor.signal import downsample

    x = tt.dtensor4("x")
    node = downsample.max_pool_2d(x, (2, 2), st=(2, 1)).owner
    assert node.op == Pool(ignore_border=False, mode="max", ndim=2)
    assert [given.eval().tolist() for given in node.inputs[1:]] == [[2, 2], [2, 1], [0, 0]]


def test_stand_ins_can_be_imported_and_say_what_they_are():
    shims.install()
    arviz = sys.modules["arviz"]
    assert isinstance(arviz, stand_ins.StandIn), "arviz is installed here"
    assert isinstance(arviz.InferenceData, type)
    with pytest.raises(NotImplementedError, match=r"arviz\.plot_trace is not here"):
        arviz.plot_trace([])
    with pytest.raises(AttributeError):
        _ = arviz.__wrapped__


def test_minibatches_index_with_tuples():
    class Minibatch:
        @staticmethod
        def make_static_slices(size):
            return slice(None, size) if size else [Ellipsis]

    pymc3 = types.SimpleNamespace(data=types.SimpleNamespace(Minibatch=Minibatch))
    for _ in range(2):
        repair_minibatches(pymc3)
    assert Minibatch.make_static_slices(None) == (Ellipsis,)
    assert Minibatch.make_static_slices(3) == slice(None, 3)
