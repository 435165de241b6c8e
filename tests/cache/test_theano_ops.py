"""The op cache changes no equality, hash or state of any op class of Theano with ``__props__``."""

from __future__ import annotations

import itertools

import pytest

import optdb
from optdb.cache.frozen import Freezer
from tests.cache.op_parameters import OUT_OF_REACH, parameter_sets, theano_classes

CLASSES = theano_classes()


def _opaque(value):
    """Represent an object that defines no equality by its class, because even equal ops have different such objects."""
    return ("an", type(value)) if type(value).__hash__ is object.__hash__ else None


_content = Freezer(changing=True, special=_opaque)


#: Attributes that an op gets when it is prepared to run.
MADE_LATER = ("ufunc", "nfunc")


def state(op, named):
    """Return all attributes that define an op, in a comparable form; `named` includes the attribute `name`."""
    return {
        name: _content(value)
        for name, value in vars(op).items()
        if not name.startswith("__") and name not in MADE_LATER and (named or name != "name")
    }


def same(one, other):
    """Return the result of ``==``, or the class of the error that it raises."""
    try:
        return one == other
    except Exception as error:
        return type(error)


def hashed(op):
    try:
        return hash(op)
    except TypeError:
        return None


class Stock:
    """The ops of a class, made while the op cache is not installed."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.sets = parameter_sets(cls)
        assert self.sets, f"no parameters were found that the constructor of {cls} takes"
        self.names = [bool(kwargs.get("name")) for _, kwargs in self.sets]
        self.ops = self.made()
        self.hashes = [hashed(op) for op in self.ops]
        self.states = self.states_of(self.ops)

    def made(self):
        return [self.cls(*args, **kwargs) for args, kwargs in self.sets]

    def states_of(self, ops):
        return [state(op, named) for op, named in zip(ops, self.names, strict=True)]

    def compare(self):
        """Make the same ops while the cache is installed, and compare them with these ops."""
        cls, sets = self.cls, self.sets
        cached, again = self.made(), self.made()
        for (i, one), (j, other) in itertools.product(enumerate(cached), repeat=2):
            assert same(one, other) == same(self.ops[i], self.ops[j]), (cls, sets[i], sets[j])
            if one is other:
                assert self.states[i] == self.states[j], (cls, sets[i], sets[j])
        assert [hashed(op) for op in cached] == self.hashes, cls
        assert [hashed(op) for op in cached] == self.hashes, (cls, "kept hashes")
        assert self.states_of(cached) == self.states, cls
        refused = {name for name, _ in optdb.cache.stats().uncached}
        if f"{cls.__module__}.{cls.__qualname__}" not in refused:
            assert all(one is other for one, other in zip(cached, again, strict=True)), cls
        assert all(type(op) is cls for op in cached), cls


def _classes_of(module):
    return [cls for cls in CLASSES if cls.__module__ == module]


@pytest.mark.parametrize("module", sorted({cls.__module__ for cls in CLASSES}))
def test_op_classes_of_a_module(module):
    # Install the cache once per module: installing it takes longer than testing most classes.
    stock = [Stock(cls) for cls in _classes_of(module) if cls.__name__ not in OUT_OF_REACH]
    if not stock:
        reasons = {OUT_OF_REACH[cls.__name__] for cls in _classes_of(module)}
        pytest.skip(f"cannot be made without {', '.join(sorted(reasons))}")
    with optdb.cache.install():
        for one in stock:
            one.compare()


@pytest.mark.slow
def test_only_ops_with_changing_props_are_refused():
    with optdb.cache.install():
        for cls in (cls for cls in CLASSES if cls.__name__ not in OUT_OF_REACH):
            for args, kwargs in parameter_sets(cls):
                cls(*args, **kwargs)
        reasons = {reason for name, reason in optdb.cache.stats().uncached if name.startswith("theano.")}
    assert not any(reason.startswith("prop ") for reason in reasons), reasons
