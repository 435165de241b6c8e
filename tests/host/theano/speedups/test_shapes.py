"""Lazy shapes equal Theano's shapes, and are built only when they are queried."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.compile.ops import Shape_i
from theano.gof import FunctionGraph, InconsistencyError
from theano.gof.toolbox import ReplaceValidate
from theano.printing import debugprint
from theano.tensor.opt import ShapeFeature, ShapeOptimizer

import optdb
from optdb.host.api.session import optimizing
from optdb.host.theano.speedups.shapes import _UNKNOWN as UNKNOWN
from optdb.host.theano.speedups.shapes import LazyShapeFeature
from tests.effort import examples
from tests.topo.graphs import STOCK, uncached_constants

UNARY = [
    tt.exp,
    lambda v: v.T,
    lambda v: v[1:],
    lambda v: v[::-1, 0:2],
    lambda v: v.sum(axis=0, keepdims=True),
    lambda v: v.reshape((-1, v.shape[0])),
    lambda v: tt.tile(v, (2, 1)),
    lambda v: tt.zeros((v.shape[1], 3)) + 1,
    lambda v: v.max(axis=1).dimshuffle("x", 0),
    lambda v: tt.unbroadcast(v.sum(axis=1, keepdims=True), 1),
]
BINARY = [tt.add, tt.dot, lambda a, b: tt.join(0, a, b), lambda a, b: tt.switch(a > 0, a, b), tt.second]

kinds, indices = st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 20)


class Side:
    """A graph that drawn numbers determine, so that equal numbers build and change equal graphs."""

    def __init__(self, build):
        self.pool = [tt.dmatrix("x"), tt.dmatrix("y"), tt.drow("z")]
        self.inputs = list(self.pool)
        for step in build:
            self.pool.append(self.make(*step))

    def make(self, kind, first, second):
        first, second = (self.pool[i % len(self.pool)] for i in (first, second))
        return UNARY[kind](first) if kind < len(UNARY) else BINARY[kind - len(UNARY)](first, second)

    def close(self, feature):
        outputs = [out for var in self.pool for out in (var, Shape_i(0)(var))]
        self.fgraph = FunctionGraph(self.inputs, outputs, clone=False, features=[ReplaceValidate()])
        self.fgraph.attach_feature(feature)

    def replace(self, which, kind, first, second):
        old = self.pool[which % len(self.pool)]
        new = self.make(kind, first, second)
        if old.type != new.type or old in theano.gof.graph.ancestors([new]):
            return
        try:
            self.fgraph.replace_all_validate([(old, new)], reason="test")
        except InconsistencyError:
            return
        self.pool.append(new)

    def shapes(self):
        known = self.fgraph.shape_feature.shape_of
        return [
            None if known[var] is None else [debugprint(length, file="str") for length in known[var]]
            for var in self.pool
            if var in self.fgraph.variables
        ]


builds = st.lists(st.tuples(kinds, indices, indices), max_size=8)


@pytest.mark.slow
@given(builds)
def test_they_are_theano_s_however_late_they_are_asked_for(build):
    with uncached_constants():
        theirs, ours = Side(build), Side(build)
        theirs.close(ShapeFeature())
        ours.close(LazyShapeFeature())
        assert theirs.shapes() == ours.shapes()


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(builds, st.lists(st.tuples(indices, kinds, indices, indices), max_size=8))
def test_they_are_theano_s_after_any_change(build, changes):
    """Query shapes after each change, because shapes that are queried later can be built from newer nodes."""
    with uncached_constants():
        theirs, ours = Side(build), Side(build)
        theirs.close(ShapeFeature())
        ours.close(LazyShapeFeature())
        ours.shapes()
        for change in changes:
            theirs.replace(*change)
            ours.replace(*change)
            assert theirs.shapes() == ours.shapes()
        assert len(theirs.fgraph.shape_feature.scheduled) == len(ours.fgraph.shape_feature.scheduled)


def attach(fgraph):
    """Attach the feature as Theano's ShapeOptimizer does while a graph is optimized."""
    with optimizing():
        ShapeOptimizer().add_requirements(fgraph)
    return fgraph.shape_feature


def test_nothing_is_built_before_it_is_asked_for(monkeypatch):
    asked = []
    stock = ShapeFeature.on_import
    monkeypatch.setattr(ShapeFeature, "on_import", lambda self, *args: (asked.append(args[1]), stock(self, *args))[1])
    x = tt.dmatrix("x")
    fgraph = FunctionGraph([x], [tt.exp(tt.dot(x, x)), tt.sin(x)], clone=False, features=[ReplaceValidate()])
    feature = attach(fgraph)
    fgraph.replace_all_validate([(fgraph.outputs[1], tt.cos(x))])
    assert asked == []
    assert feature.shape_of[fgraph.outputs[0]][0].owner.op == Shape_i(0)
    assert [node.op for node in asked] == [tt.basic._dot, tt.exp]


def test_it_is_there_during_a_session_only():
    x = tt.dvector("x")
    assert type(attach(FunctionGraph([x], [tt.exp(x)], clone=True))) is LazyShapeFeature
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
    ShapeOptimizer().add_requirements(fgraph)
    assert type(fgraph.shape_feature) is ShapeFeature


def test_a_graph_has_one():
    x = tt.dvector("x")
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=True)
    feature = attach(fgraph)
    assert attach(fgraph) is feature
    fgraph.remove_feature(feature)
    assert not hasattr(fgraph, "shape_feature")


def test_nothing_is_worked_out_for_what_has_no_lengths():
    x, y = tt.dmatrix("x"), tt.dvector("y")
    out = tt.exp(x).sum() * tt.exp(y)
    feature = attach(FunctionGraph([x, y], [out], clone=False))
    (length,) = feature.shape_of[out]
    assert length.owner.op == Shape_i(0) and length.owner.inputs == [y]
    known = [var for var in feature.fgraph.variables if feature.shape_of.promise(var).value is not UNKNOWN]
    assert out in known and x not in known


@pytest.mark.slow
def test_a_long_chain_is_no_problem():
    x = tt.dvector("x")
    out = x
    for _ in range(5000):
        out = tt.exp(out)
    feature = attach(FunctionGraph([x], [out], clone=False))
    assert feature.shape_of[out][0].owner.op == Shape_i(0)


def test_it_reads_as_a_dictionary_of_shapes():
    x = tt.dvector("x")
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=False)
    shapes = attach(fgraph).shape_of
    out = fgraph.outputs[0]
    assert set(shapes) == set(shapes.keys()) == {x, out}
    assert shapes.get(out) == shapes[out] == dict(shapes.items())[out]
    assert shapes.get(tt.dvector()) is None
    assert list(shapes.values()) == [shapes[var] for var in shapes]
    with pytest.raises(KeyError):
        shapes[tt.dvector()]


def test_a_shape_that_somebody_sets_is_kept():
    x = tt.dvector("x")
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=False)
    feature = attach(fgraph)
    seven = tt.constant(7, dtype="int64")
    feature.set_shape(fgraph.outputs[0], (seven,), override=True)
    assert feature.shape_of[fgraph.outputs[0]] == (seven,)


def test_an_op_that_infers_nonsense_is_named():
    """If an op infers a wrong shape, the error is raised when the shape is queried."""

    class Odd(theano.Op):
        __props__ = ()

        def make_node(self, x):
            return theano.Apply(self, [x], [x.type()])

        def infer_shape(self, node, shapes):
            return []

    x = tt.dvector("x")
    feature = attach(FunctionGraph([x], [Odd()(x)], clone=False))
    with pytest.raises(Exception, match=r"Odd.*wrong number of element"):
        feature.shape_of[feature.fgraph.outputs[0]]


@pytest.mark.parametrize("copy", [deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))], ids=["copy", "pickle"])
def test_a_copy_is_theano_s_own(copy):
    x = tt.dmatrix("x")
    with optdb.enable():
        f = theano.function([x], tt.dot(x, x.T).sum(axis=0), mode=STOCK)
    assert type(f.maker.fgraph.shape_feature) is LazyShapeFeature
    g = copy(f)
    feature = g.maker.fgraph.shape_feature
    assert type(feature) is ShapeFeature
    assert type(feature.shape_of) is dict and set(feature.shape_of) >= g.maker.fgraph.variables
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(f(value), g(value))


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1)])
def test_shapes_are_right(shape):
    """A compiled function computes the right lengths of an array without computing the array."""
    x = tt.dmatrix("x")
    out = tt.join(0, tt.dot(x, x.T), tt.ones((1, x.shape[0])))[:-1].reshape((-1,))
    with optdb.enable():
        f = theano.function([x], out.shape, mode=STOCK)
    assert not any(isinstance(node.op, tt.Dot) for node in f.maker.fgraph.toposort())
    np.testing.assert_array_equal(f(np.ones(shape)), [shape[0] ** 2])


STRIDED = tt.constant(np.ones((4, 5)))[::-2]


@pytest.mark.parametrize(
    "make",
    [
        lambda x, i: tt.exp(STRIDED.reshape(STRIDED.shape))[i],
        lambda x, i: tt.dot(STRIDED.reshape(STRIDED.shape), np.ones(5)).shape,
        lambda x, i: tt.exp(x[::-2].reshape(x[::-2].shape)).shape,
        lambda x, i: x[::-2].reshape((x[::-2].shape[0], -1)).flatten().reshape(x[::-2].shape).sum(axis=0)[i],
    ],
)
def test_a_reshape_to_its_own_shape_closes_no_cycle(make):
    x, i = tt.dmatrix("x"), tt.lmatrix("i")
    inputs, out = [x, i], make(x, i)
    with theano.change_flags(on_opt_error="raise"):
        f = theano.function(inputs, out, mode=optdb.mode(STOCK), on_unused_input="ignore")
    plain = theano.function(inputs, out, mode=theano.Mode("py", None), on_unused_input="ignore")
    arguments = np.arange(12.0).reshape(4, 3), [[1, 0]]
    np.testing.assert_allclose(f(*arguments), plain(*arguments))


def test_a_shape_is_taken_from_its_variable_s_replacement():
    """If `rows` replaces an alloc with the lengths of `rows`, the lengths of `rows` are not taken from the alloc."""
    x, y = tt.dmatrix("x"), tt.dscalar("y")
    rows = tt.exp(x)
    allocated = tt.alloc(y, *(rows.shape[i] for i in range(2)))
    fgraph = FunctionGraph([x, y], [tt.sin(allocated), tt.cos(rows)], clone=False, features=[ReplaceValidate()])
    feature = attach(fgraph)
    fgraph.replace_all_validate([(allocated, rows)])
    for var in (rows, *fgraph.outputs):
        assert [(length.owner.op, length.owner.inputs) for length in feature.shape_of[var]] == [
            (Shape_i(i), [x]) for i in range(2)
        ]


@pytest.mark.parametrize("outputs", [lambda x: [x.shape[0], x.shape[0], x], lambda x: [x.shape[0], x, x.shape[0], x]])
def test_an_array_and_its_length_are_returned_more_than_once(outputs):
    """Results are correct, although Theano's own feature confuses the caller's copy of a length with the length."""
    x = tt.dmatrix("x")
    f = theano.function([x], outputs(x), mode=optdb.mode(STOCK))
    plain = theano.function([x], outputs(x), mode=theano.Mode("py", None))
    value = np.arange(6.0).reshape(3, 2)
    for ours, theirs in zip(f(value), plain(value), strict=True):
        np.testing.assert_array_equal(ours, theirs)


RESHAPES = [
    lambda a, b: a.reshape(a.shape),
    lambda a, b: a.reshape(b.shape),
    lambda a, b: a.reshape((b.shape[0], -1)),
    lambda a, b: a.flatten().reshape(a.shape),
    lambda a, b: tt.alloc(a[0, 0], b.shape[0], a.shape[1]),
    lambda a, b: a[:: -b.shape[0]],
    lambda a, b: tt.exp(a),
    lambda a, b: a + b,
]


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.integers(0, len(RESHAPES) - 1), indices, indices), min_size=2, max_size=6))
def test_no_shape_is_told_by_itself(steps):
    """Even if variables are reshaped to the shapes of other variables, no rewriter makes a cycle."""
    x, y = tt.dmatrix("x"), tt.dmatrix("y")
    pool = [x, y, STRIDED]
    for kind, first, second in steps:
        pool.append(RESHAPES[kind](pool[first % len(pool)], pool[second % len(pool)]))
    outputs = [out for var in pool[-3:] for out in (var, var.shape, var.sum())]
    with theano.change_flags(on_opt_error="raise"):
        theano.function([x, y], outputs, mode=optdb.mode(STOCK), on_unused_input="ignore")
