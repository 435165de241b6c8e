"""Constants are computed in Python if their ops allow it."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import Apply, Constant, FunctionGraph, Op
from theano.tensor.opt import ShapeFeature, constant_folding, topo_constant_folding

from optdb.host.api.folding import fold_node, fold_replacements, is_folding_pass
from optdb.host.api.session import optimizing


def const(value, dtype="float64"):
    return tt.constant(np.asarray(value, dtype)).clone()


def folded(variable):
    """Return the value of the only output of a node with constant inputs."""
    (constant,) = fold_node(variable.owner)
    assert isinstance(constant, Constant)
    assert constant.type == variable.type
    return constant.data


class CountedOp(Op):
    """An op that computes x + 1 and counts its calls; `foldable` decides whether Theano folds it."""

    __props__ = ("foldable",)

    def __init__(self, foldable=True):
        self.foldable = foldable
        self.performed = 0

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [inputs[0].type()])

    def do_constant_folding(self, node):
        return self.foldable

    def perform(self, node, inputs, outputs):
        self.performed += 1
        outputs[0][0] = inputs[0] + 1

    def c_code(self, *args, **kwargs):
        raise AssertionError("no compiler is needed for a constant")


@pytest.fixture
def no_compiler(monkeypatch):
    """Make each call of the C compiler raise an error."""

    def compile_str(*args, **kwargs):
        raise AssertionError("the compiler was called")

    monkeypatch.setattr(theano.gof.cmodule.GCC_compiler, "compile_str", staticmethod(compile_str))


A = const([[1.0, 2.0], [3.0, 4.0]])
EXPRESSIONS = {
    "elemwise": (lambda: tt.exp(A), np.exp(A.data)),
    "two inputs": (lambda: A + const([1.0, 2.0]), A.data + np.array([1, 2])),
    "cast": (lambda: tt.cast(const([1.7, -1.7]), "int8"), np.array([1, -1], "int8")),
    "comparison": (lambda: tt.gt(A, const(2.0)), A.data > 2),
    "dimshuffle": (lambda: A.dimshuffle(1, "x", 0), A.data.T[:, None]),
    "dropped axis": (lambda: const([[1.0, 2.0]]).dimshuffle(1), np.array([1.0, 2.0])),
    "sum": (lambda: A.sum(axis=0), A.data.sum(axis=0)),
    "subtensor": (lambda: A[::-1, 1], A.data[::-1, 1]),
    "dot": (lambda: tt.dot(A, A), A.data @ A.data),
    "reshape": (lambda: A.reshape((4,)), A.data.reshape(4)),
    "join": (lambda: tt.join(const(1, "int8"), A, A), np.concatenate([A.data, A.data], 1)),
    "scalar": (lambda: theano.scalar.add(theano.scalar.constant(2), theano.scalar.constant(3)), 5),
    "shape": (lambda: A.shape, [2, 2]),
}


@pytest.mark.parametrize("cxx", ["", "g++"])
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_values(kind, cxx, no_compiler):
    make, expected = EXPRESSIONS[kind]
    with theano.change_flags(cxx=cxx):
        variable = make()
        if any(not isinstance(var, Constant) for var in variable.owner.inputs):
            (variable,) = fold_replacements(FunctionGraph([], []), [variable])
            value = variable.data
        else:
            value = folded(variable)
    np.testing.assert_array_equal(value, expected)
    assert np.asarray(value).dtype == variable.type.dtype


def test_the_op_decides():
    assert fold_node(CountedOp(foldable=False)(A).owner) is None
    np.testing.assert_array_equal(folded(CountedOp()(A)), A.data + 1)


def test_an_alloc_is_kept_for_who_fills_it():
    """Theano does not fold an alloc if one of its clients overwrites or decomposes it."""
    x = tt.dvector("x")
    into = tt.inc_subtensor(tt.alloc(const(0.0), const(3, "int64"))[:2], x)
    fgraph = FunctionGraph([x], [into], clone=True)
    (alloc,) = (node for node in fgraph.apply_nodes if isinstance(node.op, tt.Alloc))
    assert fold_node(alloc) is None


def test_all_inputs_must_be_constants():
    op = CountedOp()
    assert fold_node(op(tt.dmatrix()).owner) is None
    assert fold_node(op(A, tt.dmatrix()).owner) is None
    assert op.performed == 0


def test_a_constant_that_is_overwritten_keeps_its_value():
    class OverWrite(Op):
        __props__ = ()

        def __init__(self):
            self.destroy_map = {0: [0]}

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            inputs[0][...] = 7
            outputs[0][0] = inputs[0]

    x = const([1.0, 2.0])
    assert folded(OverWrite()(x)).tolist() == [7, 7]
    assert x.data.tolist() == [1, 2]


@pytest.mark.parametrize("count", [31, 32, 40])
def test_many_inputs(count):
    """NumPy takes at most 31 inputs; for more inputs, Theano only has C code, which needs a compiler."""
    added = tt.add(*[const([float(i)]) for i in range(count)])
    if count > 31 and not theano.config.cxx:
        with pytest.raises(Exception):  # noqa: B017 (which one is Theano's affair)
            fold_node(added.owner)
        return
    assert folded(added).tolist() == [sum(range(count))]


def test_many_inputs_do_not_end_an_optimization():
    x = tt.dvector("x")
    y = tt.add(*[const([float(i)]) for i in range(40)]) * x
    (replacement,) = fold_replacements(FunctionGraph([x], [tt.exp(x)], clone=False), [y])
    assert replacement is y
    assert isinstance(y.owner.inputs[0], Constant) == bool(theano.config.cxx)


def test_an_op_without_perform_is_compiled():
    """An op without `perform` is compiled; an op that also has no C code raises an error."""

    class Neither(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

    with pytest.raises(Exception, match=r"perform|c_code|MethodNotDefined"):
        fold_node(Neither()(A).owner)


def test_several_outputs():
    class Both(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type(), tt.lscalar()])

        def perform(self, node, inputs, outputs):
            outputs[0][0], outputs[1][0] = inputs[0] * 2, np.int64(inputs[0].size)

    twice, size = fold_node(Both()(A)[0].owner)
    np.testing.assert_array_equal(twice.data, A.data * 2)
    assert size.data == 4
    assert size.type == tt.lscalar


def test_a_trace_is_carried_to_the_constant():
    variable = tt.exp(A)
    (constant,) = fold_node(variable.owner)
    assert variable.tag.trace
    assert all(trace in constant.tag.trace for trace in variable.tag.trace)


# -- replacements, before they enter a graph


@pytest.fixture
def fgraph():
    x = tt.dvector("x")
    fgraph = FunctionGraph([x], [tt.exp(x)], clone=False)
    fgraph.attach_feature(ShapeFeature())
    return fgraph


def test_a_whole_expression_collapses_at_once(fgraph):
    (x,) = fgraph.inputs
    inner = tt.exp(tt.log(const([1.0, 2.0])) + const(1.0))
    outer = x * inner
    (replacement,) = fold_replacements(fgraph, [outer])
    assert replacement is outer, "it depends on x"
    np.testing.assert_allclose(outer.owner.inputs[1].data, np.exp(np.log([1.0, 2.0]) + 1))
    (constant,) = fold_replacements(fgraph, [tt.exp(const(1.0))])
    assert constant.data == np.exp(1.0)


def test_the_shape_feature_is_told(fgraph):
    constant, _ = fold_replacements(fgraph, [tt.exp(const([1.0, 2.0])), None])
    shape = fgraph.shape_feature.shape_of[constant]
    assert [int(length.data) for length in shape] == [2]


def test_it_works_without_a_shape_feature():
    x = tt.dvector("x")
    plain = FunctionGraph([x], [tt.exp(x)], clone=False)
    (constant,) = fold_replacements(plain, [tt.exp(const(1.0))])
    assert isinstance(constant, Constant)


def test_none_and_variables_of_the_graph_stay(fgraph):
    (x,), (out,) = fgraph.inputs, fgraph.outputs
    assert fold_replacements(fgraph, [None, x, out]) == [None, x, out]


def test_nodes_of_the_graph_are_left_alone():
    op = CountedOp()
    inside = op(A)
    fgraph = FunctionGraph([], [inside], clone=False)
    outside = tt.exp(inside)
    assert fold_replacements(fgraph, [outside]) == [outside]
    assert outside.owner.inputs[0] is inside
    assert op.performed == 0


def test_what_is_shared_is_computed_once(fgraph):
    op = CountedOp()
    shared = op(A)
    first, second = fold_replacements(fgraph, [tt.exp(shared), tt.sin(shared)])
    assert isinstance(first, Constant)
    assert isinstance(second, Constant)
    assert op.performed == 1


def test_equal_nodes_are_computed_once_in_a_session(fgraph):
    """Small nodes are cached: rewriters make the same casts of the same numbers thousands of times."""
    op = CountedOp()
    with optimizing():
        values = [fold_replacements(fgraph, [op(const([1.0, 2.0]))])[0].data for _ in range(3)]
    assert op.performed == 1
    assert all(np.array_equal(value, values[0]) for value in values)
    fold_replacements(fgraph, [op(const([1.0, 2.0]))])
    assert op.performed == 2, "nothing is kept"


def test_what_cannot_be_computed_stays(fgraph):
    """A node that raises stays in the graph, and so does its client; everything else is folded."""

    class Fails(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            raise ZeroDivisionError

    failing = Fails()(tt.exp(A))
    output = tt.sin(failing) + tt.cos(const([1.0, 2.0]))
    (replacement,) = fold_replacements(fgraph, [output])
    assert replacement is output
    assert isinstance(failing.owner.inputs[0], Constant)
    assert isinstance(output.owner.inputs[1], Constant)


def test_theanos_folding_pass_is_recognized():
    assert is_folding_pass(topo_constant_folding)
    assert is_folding_pass(theano.gof.opt.in2out(constant_folding, ignore_newtrees=True))
    assert not is_folding_pass(theano.gof.opt.MergeOptimizer())
    assert not is_folding_pass(theano.gof.opt.in2out(theano.tensor.opt.local_useless_fill))
