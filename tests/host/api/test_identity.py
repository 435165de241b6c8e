"""The equality and the hashes of ops are Theano's own; both are cached while graphs are optimized."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import Apply, Op

import optdb
from optdb.host.api import identity
from optdb.host.api.identity import numbers
from optdb.host.api.session import optimizing, remove_all


class WithProps(Op):
    """An op class whose equality Theano generates."""

    __props__ = ("value",)

    def __init__(self, value):
        self.value = value

    def make_node(self, x):
        return Apply(self, [x], [x.type()])


class InheritsProps(WithProps):
    """An op class that differs from its parent only by its name."""


class Loose(WithProps):
    """An op class with the hash that Theano generated for its parent, and with another equality."""

    __hash__ = WithProps.__hash__

    def __eq__(self, other):
        return type(self) is type(other)


class Counting(Op):
    """Counts comparisons and hashes."""

    asked = 0

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        type(self).asked += 1
        return type(self) is type(other) and self.value == other.value

    def __hash__(self):
        type(self).asked += 1
        return hash(self.value)

    def make_node(self, x):
        return Apply(self, [x], [x.type()])


class Child(Counting):
    """An op class whose comparison and hash also use an attribute that its parent lacks."""

    def __init__(self, value, more):
        super().__init__(value)
        self.more = more

    def __eq__(self, other):
        return super().__eq__(other) and self.more == other.more

    def __hash__(self):
        return super().__hash__() ^ hash(self.more)


class SameClassOnly(Counting):
    """Inherits its parent's equality."""


class Colliding(Counting):
    """An op class whose ops all have the same hash."""

    def __eq__(self, other):
        return type(self) is type(other) and self.value == other.value

    def __hash__(self):
        return 1


class Unhashable(Op):
    """An op class that defines equality, but no hash."""

    __hash__ = None

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(self) is type(other) and self.value == other.value


@pytest.fixture(autouse=True)
def patched_anew():
    """Remove optdb's patches before and after each test, so that they inspect the classes of this file again."""
    remove_all()
    yield
    remove_all()


PAIRS = [
    (WithProps(1), WithProps(1)),
    (WithProps(1), WithProps(2)),
    (WithProps((1, 2)), WithProps((1, 2))),
    (WithProps(1), WithProps(True)),
    (WithProps(float("nan")), WithProps(float("nan"))),
    (WithProps(WithProps(1)), WithProps(WithProps(1))),
    (WithProps(1), InheritsProps(1)),
    (InheritsProps(1), InheritsProps(1)),
    (Loose(1), Loose(1)),
    (Loose(-1), Loose(-2)),  # equal hashes
    (WithProps(-1), WithProps(-2)),
    (WithProps(1), Counting(1)),
    (Counting(1), Counting(1)),
    (Counting(1), SameClassOnly(1)),
    (SameClassOnly(1), SameClassOnly(1)),
    (Child(1, 2), Child(1, 2)),
    (Child(1, 2), Child(1, 3)),
    (Child(1, 2), Counting(1)),
    (Colliding(1), Colliding(2)),
    (Colliding(1), Colliding(1)),
    (tt.exp, tt.elemwise.Elemwise(theano.scalar.exp)),
    (tt.exp, tt.elemwise.Elemwise(theano.scalar.exp, {0: 0})),
    (tt.elemwise.Sum(axis=0), tt.elemwise.Sum(axis=0)),
    (tt.elemwise.Sum(axis=0), tt.elemwise.Sum(axis=[1])),
    (tt.elemwise.Sum(axis=0), tt.elemwise.Prod(axis=0)),
    (tt.elemwise.DimShuffle((False,), ["x", 0]), tt.elemwise.DimShuffle((False,), ["x", 0])),
    (tt.elemwise.DimShuffle((False,), ["x", 0]), tt.elemwise.DimShuffle((False,), [0, "x"])),
    (theano.scalar.add, theano.scalar.mul),
    (theano.scalar.Cast(theano.scalar.int8), theano.scalar.Cast(theano.scalar.int8)),
    (theano.scalar.Cast(theano.scalar.int8), theano.scalar.Cast(theano.scalar.int16)),
]


@pytest.mark.parametrize("one, other", PAIRS, ids=lambda op: str(op).partition(" object at")[0])
def test_the_answers_are_theanos(one, other):
    before = one == other, one != other, hash(one) == hash(other)
    with optimizing():
        for _ in range(2):
            assert (one == other, one != other, hash(one) == hash(other)) == before
            assert (other == one, other != one) == before[:2]
        assert hash(one) == type(one).__hash__(one)
        assert one == one
        assert (one == "something else", one is None, one == 3) == (False, False, False)
    assert (one == other, one != other, hash(one) == hash(other)) == before


def test_hashes_are_the_same_before_and_during():
    """Dictionaries of ops can be made before an optimization and used during it, and vice versa."""
    ops = [op for pair in PAIRS for op in pair]
    before = {op: str(op) for op in ops}
    with optimizing():
        assert all(op in before for op in ops)
        during = {op: str(op) for op in ops}
    assert all(op in during for op in ops)
    assert before.keys() == during.keys()


def test_the_question_is_asked_once():
    ops = [Counting(value) for value in (1, 2, 1)]
    with optimizing():
        assert ops[0] == ops[2]
        assert ops[0] != ops[1]
        Counting.asked = 0
        for _ in range(10):
            assert ops[0] == ops[2]
            assert ops[0] != ops[1]
            assert hash(ops[0]) == hash(1)
        assert Counting.asked == 0
    Counting.asked = 0
    assert ops[0] == ops[2]
    assert hash(ops[0])
    assert Counting.asked == 2, "Theano's own answers again"


def test_an_op_that_changed_is_asked_again_next_time():
    """Ops are compared by numbers, which are valid only during one optimization."""
    one, other = Counting(1), Counting(2)
    with optimizing():
        assert one != other
    other.value = 1
    with optimizing():
        assert one == other


def test_classes_made_during_an_optimization():
    with optimizing():

        class Late(Counting):
            def __eq__(self, other):
                return type(self) is type(other)

            def __hash__(self):
                return 3

        assert Late(1) == Late(2)
        assert hash(Late(1)) == 3


def test_unhashable_ops_stay_unhashable():
    one, other = Unhashable(1), Unhashable(1)
    with optimizing():
        assert one == other
        assert one != Unhashable(2)
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)


def test_ops_with_unhashable_props():
    """The hash that Theano generates for these ops raises an error, but the ops can be compared."""
    one, other = WithProps([1]), WithProps([1])
    with optimizing():
        assert one == other
        assert one != WithProps([2])
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)


@pytest.mark.usefixtures("alone")
def test_no_op_is_kept_alive():
    op = Counting(1)
    gone = weakref.ref(op)
    with optimizing():
        assert op == Counting(1)
    del op
    gc.collect()
    assert gone() is None
    assert not numbers.of
    assert not numbers._by_value


def test_an_id_is_never_taken_for_another_op():
    """If ops are created and dropped during an optimization, their memory is reused, but their numbers are not."""
    with optimizing():
        for value in range(2000):
            assert Counting(value) == Counting(value)
            assert Counting(value) != Counting(value + 1)


def test_everything_can_be_put_back():
    with optimizing():
        assert vars(Counting)["__eq__"].__module__ == identity.__name__
    remove_all()
    assert vars(Counting)["__eq__"].__module__ == __name__
    assert vars(Counting)["__hash__"].__module__ == __name__


def test_enabling_leaves_nothing_to_the_first_session():
    with optdb.enable():
        assert vars(Counting)["__eq__"].__module__ == identity.__name__
    assert vars(Counting)["__eq__"].__module__ == __name__


def test_an_op_class_that_comes_after_enabling_is_covered():
    with optdb.enable():

        class Late(Counting):
            def __eq__(self, other):
                return super().__eq__(other)

            __hash__ = Counting.__hash__

        with optimizing():
            assert vars(Late)["__eq__"].__module__ == identity.__name__
    assert vars(Late)["__eq__"].__module__ == __name__


def test_a_graph_with_ops_of_all_kinds_optimizes():
    x = tt.dvector("x")
    y = tt.exp(x) + Same()(Same()(x))
    f = theano.function([x], y, mode=theano.Mode("py", "fast_run"))
    with optimizing():
        g = theano.function([x], y, mode=theano.Mode("py", "fast_run"))
    np.testing.assert_array_equal(f([1.0]), g([1.0]))


class Same(Unhashable):
    """A graph can contain an op without a hash."""

    __hash__ = Op.__hash__

    def __init__(self):
        super().__init__(0)

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0].copy()


def test_equal_scans_are_equal_though_their_hashes_differ():
    x = tt.dvector()
    outputs = [theano.scan(lambda s: s + 1, sequences=[x], mode=mode)[0] for mode in (None, "FAST_COMPILE")]
    first, second = (out.owner.op for out in outputs)
    assert first == second
    assert hash(first) != hash(second)
    with optimizing():
        assert first == second
        assert hash(first) == hash(second)
