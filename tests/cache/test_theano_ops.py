"""Every op class of Theano with ``__props__``: the cache changes neither equality, nor hash, nor state."""

from __future__ import annotations

import itertools

import pytest

import optdb
from optdb.cache.frozen import Freezer
from tests.cache.op_parameters import OUT_OF_REACH, parameter_sets, theano_classes

CLASSES = theano_classes()


def _opaque(value):
    """Objects without equality are new each time; their class can be compared."""
    return ("an", type(value)) if type(value).__hash__ is object.__hash__ else None


_content = Freezer(changing=True, special=_opaque)


#: Attributes that an op gets when it is prepared to run.
MADE_LATER = ("ufunc", "nfunc")


def state(op, named):
    """Everything that defines an op, in comparable form; its name only if it was given one."""
    return {
        name: _content(value)
        for name, value in vars(op).items()
        if not name.startswith("__") and name not in MADE_LATER and (named or name != "name")
    }


def same(one, other):
    """The result of ``==``, or the error that it raises."""
    try:
        return one == other
    except Exception as error:
        return type(error)


def hashed(op):
    try:
        return hash(op)
    except TypeError:
        return None


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_an_op_class(cls):
    sets = parameter_sets(cls)
    if cls.__name__ in OUT_OF_REACH:
        pytest.skip(f"cannot be made without {OUT_OF_REACH[cls.__name__]}")
    assert sets, "no parameters were found that its constructor takes"
    names = [bool(kwargs.get("name")) for _, kwargs in sets]
    stock = [cls(*args, **kwargs) for args, kwargs in sets]
    stock_hashes = [hashed(op) for op in stock]
    stock_states = [state(op, named) for op, named in zip(stock, names, strict=True)]
    with optdb.cache.install():
        cached = [cls(*args, **kwargs) for args, kwargs in sets]
        again = [cls(*args, **kwargs) for args, kwargs in sets]
        for (i, one), (j, other) in itertools.product(enumerate(cached), repeat=2):
            assert same(one, other) == same(stock[i], stock[j]), (sets[i], sets[j])
            if one is other:
                assert stock_states[i] == stock_states[j], (sets[i], sets[j])
        assert [hashed(op) for op in cached] == stock_hashes
        assert [hashed(op) for op in cached] == stock_hashes, "kept hashes"
        assert [state(op, named) for op, named in zip(cached, names, strict=True)] == stock_states
        refused = {name for name, _ in optdb.cache.stats().uncached}
        if f"{cls.__module__}.{cls.__qualname__}" not in refused:
            assert all(one is other for one, other in zip(cached, again, strict=True))
    assert all(type(op) is cls for op in cached)


@pytest.mark.slow
def test_only_ops_with_changing_props_are_refused():
    with optdb.cache.install():
        for cls in (cls for cls in CLASSES if cls.__name__ not in OUT_OF_REACH):
            for args, kwargs in parameter_sets(cls):
                cls(*args, **kwargs)
        reasons = {reason for name, reason in optdb.cache.stats().uncached if name.startswith("theano.")}
    assert not any(reason.startswith("prop ") for reason in reasons), reasons
