"""Whole graphs are lifted to a fake device."""

from __future__ import annotations

import copy
import dataclasses
import logging

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.ifelse import IfElse, ifelse

import optdb
from optdb.lifters import Device, GraphToGPU, op_lifter
from tests.effort import examples
from tests.lifters.paper import PAPER, FromPaper, OnPaper, PaperType, Recopy, ToPaper, as_paper, paper_lifters

PY = theano.Mode("py", None)


def graph(inputs, outputs):
    return theano.FunctionGraph(list(inputs), list(outputs), clone=False)


def lifted(inputs, outputs, lift=None):
    """Lift a copy of a graph to paper; return the copy."""
    inputs, outputs = theano.gof.graph.clone(list(inputs), list(outputs))
    fgraph = graph(inputs, outputs)
    (lift or paper_lifters.query()).optimize(fgraph)
    return fgraph


def ops(fgraph):
    return [node.op for node in fgraph.toposort()]


def count(fgraph, cls):
    return sum(isinstance(op, cls) for op in ops(fgraph))


def no_detours(fgraph):
    """Assert that no value is transferred to paper and back, or the other way round."""
    for node in fgraph.apply_nodes:
        for var in node.inputs:
            if var.owner is None:
                continue
            there_and_back = isinstance(node.op, FromPaper) and isinstance(var.owner.op, ToPaper)
            back_and_there = isinstance(node.op, ToPaper) and isinstance(var.owner.op, FromPaper)
            assert not there_and_back, node
            assert not back_and_there, node


def values(fgraph, *arguments):
    return theano.function(fgraph.inputs, fgraph.outputs, mode=PY, on_unused_input="ignore")(*arguments)


def test_a_chain_moves_once_and_comes_back_once():
    x, y, z = tt.dmatrix("x"), tt.dmatrix("y"), tt.dvector("z")
    out = tt.tanh(tt.dot(x, y) + z) * tt.exp(x)
    fgraph = lifted([x, y, z], [out])
    assert count(fgraph, ToPaper) == 3
    assert count(fgraph, FromPaper) == 1
    assert not any(isinstance(op, tt.elemwise.Elemwise) for op in ops(fgraph))
    a, b, c = np.eye(2), np.full((2, 2), 2.0), np.array([1.0, -1.0])
    np.testing.assert_allclose(values(fgraph, a, b, c)[0], np.tanh(a @ b + c) * np.exp(a))


def test_an_input_that_is_an_output_stays_itself():
    x = tt.dmatrix("x")
    fgraph = lifted([x], [x, tt.dot(x, x)])
    assert fgraph.outputs[0] is fgraph.inputs[0]
    no_detours(fgraph)


def test_one_result_used_twice_comes_back_once():
    x = tt.dmatrix("x")
    y = tt.dot(x, x)
    fgraph = lifted([x], [y, y, tt.nlinalg.matrix_inverse(y)])
    assert count(fgraph, FromPaper) == 1
    assert fgraph.outputs[0] is fgraph.outputs[1]


def test_constants_move_once():
    x = tt.dmatrix("x")
    c = tt.constant(np.eye(3))
    fgraph = lifted([x], [tt.dot(x, c) + tt.dot(c, x)])
    assert count(fgraph, ToPaper) == 2


def test_an_op_without_a_lifter_divides_the_graph():
    x = tt.dmatrix("x")
    middle = tt.nlinalg.matrix_inverse(tt.dot(x, x))
    fgraph = lifted([x], [tt.dot(middle, middle)])
    assert count(fgraph, FromPaper) == 2
    assert count(fgraph, ToPaper) == 2
    no_detours(fgraph)
    [report] = fgraph.lift_reports
    assert report.by_reason() == {("MatrixInverse", "no lifter"): 1}
    assert report.by_lifter() == {("dot", "any_op"): 2}


def test_small_partitions_are_pulled_back():
    x, y = tt.dvector("x"), tt.dvector("y")
    fgraph = lifted([x, y], [x + y])
    assert ops(fgraph) == [tt.add]
    [node] = fgraph.lift_reports[-1].nodes
    assert "partition" in node.reason


def test_a_partition_of_the_host_that_only_costs_transfers_goes_there():
    x = tt.dmatrix("x")
    x.tag.target = "cpu"
    seen = tt.exp(x)
    fgraph = lifted([x], [tt.dot(seen, seen) + tt.dot(seen, x), tt.dot(x, x)])
    assert not any(isinstance(op, tt.elemwise.Elemwise) for op in ops(fgraph))


def test_backward_a_source_goes_where_it_is_wanted():
    x, n = tt.dmatrix("x"), tt.lscalar("n")
    ones = tt.alloc(np.float64(1), n, n)
    fgraph = lifted([x, n], [tt.dot(x, ones)])
    assert not any(isinstance(op, tt.Alloc) for op in ops(fgraph))
    np.testing.assert_allclose(values(fgraph, np.eye(3), 3)[0], np.ones((3, 3)))


def test_a_source_stays_where_its_users_want_it_on_the_host(monkeypatch):
    monkeypatch.setattr("optdb.lifters.device._devices", [])  # the device below is only for this test
    device = dataclasses.replace(PAPER, is_host_input=lambda op, i: isinstance(op, tt.Dot) and i == 1)
    x, n = tt.dmatrix("x"), tt.lscalar("n")
    ones = tt.alloc(np.float64(1), n, n)
    lift = GraphToGPU(paper_lifters, device)
    for out, stays in [(tt.dot(x, ones), True), (tt.dot(ones, x), False)]:
        fgraph = lifted([x, n], [out], lift)
        assert any(isinstance(op, tt.Alloc) for op in ops(fgraph)) == stays
        np.testing.assert_allclose(values(fgraph, np.eye(3), 3)[0], np.ones((3, 3)))


def test_backward_a_node_whose_users_are_all_there_goes_too():
    n = tt.lscalar("n")
    x = tt.dmatrix("x")
    row = tt.nlinalg.diag(x)
    fgraph = lifted([x, n], [tt.dot(tt.exp(tt.cast(n, "float64") * tt.nlinalg.matrix_inverse(x)), x), row])
    assert not any(str(op) == "Elemwise{exp,no_inplace}" for op in ops(fgraph))


def test_sizes_stay_on_the_host():
    x = tt.dmatrix("x")
    fgraph = lifted([x], [tt.dot(x, x), x.shape[0] * 2])
    assert tt.mul in [op for op in ops(fgraph) if isinstance(op, tt.elemwise.Elemwise)]


def test_a_tag_says_where_an_input_goes():
    x, y = tt.dmatrix("x"), tt.dmatrix("y")
    x.tag.target, y.tag.target = "a", "a"
    fgraph = lifted([x, y], [tt.dot(x, y)])
    assert {op.context_name for op in ops(fgraph) if isinstance(op, ToPaper | OnPaper)} == {"a"}


def test_inputs_in_two_contexts_are_not_mixed():
    x, y = tt.dmatrix("x"), tt.dmatrix("y")
    x.tag.target, y.tag.target = "a", "b"
    fgraph = lifted([x, y], [tt.dot(tt.dot(x, x), tt.dot(y, y))])
    assert sum(isinstance(op, tt.Dot) for op in ops(fgraph)) == 1
    reasons = list(fgraph.lift_reports[-1].by_reason())
    assert reasons == [("dot", "its inputs are in several contexts: 'a', 'b'")]


def test_transfers_that_the_user_wrote_stay():
    x = tt.dmatrix("x")
    there = ToPaper("far")(tt.dot(x, x))
    fgraph = lifted([x], [there])
    assert isinstance(fgraph.outputs[0].type, PaperType)
    assert fgraph.outputs[0].type.context_name == "far"
    assert count(fgraph, FromPaper) == 0


def test_between_contexts():
    x = tt.dmatrix("x")
    fgraph = lifted([x], [FromPaper()(Recopy("far")(ToPaper("near")(tt.dot(x, x)))) + 1])
    np.testing.assert_allclose(values(fgraph, np.eye(2))[0], np.eye(2) + 1)
    no_detours(fgraph)


def test_an_input_on_the_device_needs_no_transfer():
    x = PaperType("float64", (False, False), "sheet")("x")
    fgraph = lifted([x], [FromPaper()(as_paper(tt.exp(FromPaper()(x)), "sheet"))])
    assert count(fgraph, ToPaper) == 0
    assert count(fgraph, FromPaper) == 1


def test_refused_dtypes_stay_with_a_reason():
    x, z = tt.dmatrix("x"), tt.zmatrix("z")
    fgraph = lifted([x, z], [tt.dot(tt.dot(x, x), z)])
    assert ("dot", "paper holds no complex numbers") in fgraph.lift_reports[-1].by_reason()


def test_ifelse_with_its_branches():
    c, x = tt.bscalar("c"), tt.dmatrix("x")
    fgraph = lifted([c, x], [ifelse(c, tt.dot(x, x), tt.dot(x, x + 1)) * 2])
    [chosen] = [node for node in fgraph.apply_nodes if isinstance(node.op, IfElse)]
    assert all(isinstance(var.type, PaperType) for var in chosen.inputs[1:])
    for condition in (0, 1):
        expected = np.eye(2) @ (np.eye(2) + 1 - condition) * 2
        np.testing.assert_allclose(values(fgraph, condition, np.eye(2))[0], expected)


def test_traces_lead_to_the_users_line():
    x = tt.dmatrix("x")
    out = tt.dot(x, x)
    fgraph = graph([x], [out])
    trace = out.tag.trace
    paper_lifters.query().optimize(fgraph)
    [new] = fgraph.outputs
    assert new is not out
    assert new.tag.trace[0] == trace[0] or trace in new.tag.trace
    assert new.owner.inputs[0].tag.trace


def test_the_old_graph_stays_where_the_new_one_is_not_valid():
    class Refusing:
        def on_attach(self, fgraph):
            pass

        def validate(self, fgraph):
            if any(isinstance(node.op, ToPaper) for node in fgraph.apply_nodes):
                raise theano.gof.InconsistencyError("no paper here")

    x = tt.dmatrix("x")
    fgraph = graph([x], [tt.dot(x, x)])
    before = list(ops(fgraph))
    fgraph.attach_feature(theano.gof.toolbox.ReplaceValidate())
    fgraph.attach_feature(Refusing())
    with pytest.raises(theano.gof.InconsistencyError, match="no paper here"):
        paper_lifters.query().optimize(fgraph)
    assert ops(fgraph) == before


def lift_with(*lifters):
    return GraphToGPU(lifters, PAPER)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (lambda x: OnPaper(tt.Dot(), "sheet")(x, x).astype, "must return an op, a variable"),
        (lambda x: [as_paper(x, "sheet")] * 2, "returned 2 outputs"),
        (lambda x: as_paper(tt.cast(x, "float32"), "sheet"), "returned dtype float32 for output 0"),
        (lambda x: as_paper(x[0], "sheet"), "returned ndim 1 for output 0"),
        (lambda x: as_paper(tt.addbroadcast(x, 0), "sheet"), "returned broadcastable (True, False) for output 0"),
    ],
)
def test_bad_lifts_are_refused(given, complaint, caplog):
    @op_lifter([tt.Dot])
    def wrong(op, context_name, inputs, outputs):
        x = inputs[0]
        return given(FromPaper()(x) if isinstance(x.type, PaperType) else x)

    x = tt.dmatrix("x")
    with caplog.at_level(logging.WARNING):
        if "return an op" in complaint:
            given_value = object()

            @op_lifter([tt.Dot])
            def wrong(op, context_name, inputs, outputs):
                return given_value

        fgraph = lifted([x], [tt.dot(x, x)], lift_with(wrong))
    assert complaint in caplog.text
    assert ops(fgraph) == [tt.basic._dot]
    np.testing.assert_allclose(values(fgraph, np.eye(2))[0], np.eye(2))


def test_lifters_are_asked_in_the_order_of_their_positions():
    db = copy.copy(paper_lifters)
    asked = []

    def lifter(name, answer):
        @op_lifter([tt.Dot])
        def lift(op, context_name, inputs, outputs):
            asked.append(name)
            return answer and OnPaper(op, context_name)

        return lift

    db = type(paper_lifters)(PAPER)
    optdb.register_topo("fast_run", db=db, position=20, name="general")(lifter("general", True))
    optdb.register_topo("fast_run", db=db, position=10, name="special")(lifter("special", None))
    optdb.register_topo("other", db=db, position=5, name="unselected")(lifter("unselected", True))
    x = tt.dmatrix("x")
    fgraph = lifted([x], [tt.dot(x, x)], db.query("+fast_run"))
    assert asked == ["special", "general"]
    [node] = fgraph.lift_reports[-1].nodes
    assert node.lifter == "general"
    lifted([x], [tt.dot(x, x)], db.query("+fast_run", "-general"))
    assert asked == ["special", "general", "special"]


def test_lifters_of_an_instance_come_before_those_of_its_class():
    @op_lifter([tt.elemwise.Elemwise])
    def general(op, context_name, inputs, outputs):
        return OnPaper(op, context_name)

    @op_lifter([tt.exp])
    def special(op, context_name, inputs, outputs):
        return OnPaper(op, context_name)

    @op_lifter([tt.Dot])
    def dots(op, context_name, inputs, outputs):
        return OnPaper(op, context_name)

    x = tt.dmatrix("x")
    fgraph = lifted([x], [tt.tanh(tt.exp(tt.dot(x, x)))], lift_with(general, special, dots))
    assert [node.lifter for node in fgraph.lift_reports[-1].nodes] == ["dots", "special", "general"]


def test_a_predicate_gives_its_reason():
    @op_lifter([tt.Dot], supports=lambda op, context_name, inputs, outputs: "vectors only")
    def dots(op, context_name, inputs, outputs):
        pytest.fail("was called")

    x = tt.dmatrix("x")
    fgraph = lifted([x], [tt.dot(x, x)], lift_with(dots))
    assert fgraph.lift_reports[-1].by_reason() == {("dot", "vectors only"): 1}


def test_a_database_is_asked_when_a_graph_is_lifted():
    db = optdb.TopoOptDB()
    lift = GraphToGPU(db, PAPER)
    x = tt.dmatrix("x")
    assert count(lifted([x], [tt.dot(x, x)], lift), OnPaper) == 0

    @optdb.register_topo("fast_run", db=db)
    @optdb.op_lifter([tt.Dot])
    def late(op, context_name, inputs, outputs):
        return OnPaper(op, context_name)

    assert count(lifted([x], [tt.dot(x, x)], lift), OnPaper) == 1


@pytest.mark.parametrize("wrong", [tt.Dot, tt.dot, [], [3], ["Dot"], [theano.scalar.exp]])
def test_op_lifter_wants_a_list_of_ops(wrong):
    with pytest.raises(TypeError, match="op_lifter for 'lift'"):

        @op_lifter(wrong)
        def lift(op, context_name, inputs, outputs):
            pass


def test_no_default_context_and_no_tag_leaves_the_graph_alone(monkeypatch):
    monkeypatch.setattr("optdb.lifters.device._devices", [])  # the device below is only for this test
    nowhere = Device(
        name="nowhere",
        array_type=PaperType,
        from_host=ToPaper,
        to_host=FromPaper,
        between=Recopy,
        as_variable=as_paper,
        default_context=lambda: None,
    )
    x = tt.dmatrix("x")
    fgraph = lifted([x], [tt.dot(x, x)], GraphToGPU(paper_lifters, nowhere))
    assert ops(fgraph) == [tt.basic._dot]


def test_the_old_way_lifts_one_node_between_transfers():
    x = tt.dmatrix("x")
    near = FromPaper()(as_paper(x, "sheet"))
    fgraph = graph([x], [tt.dot(near, near)])
    [lifter] = paper_lifters.query().lifters[tt.Dot]
    [dot] = [node for node in fgraph.apply_nodes if isinstance(node.op, tt.Dot)]
    [new] = lifter.transform(dot)
    assert isinstance(new.owner.op, FromPaper)
    y = tt.dmatrix("y")
    assert lifter.transform(graph([y], [tt.dot(y, y)]).outputs[0].owner) is False


@st.composite
def graphs(draw):
    """Draw a random graph of ops with and without lifters."""
    leaves = [tt.dmatrix("a"), tt.dmatrix("b"), tt.constant(np.eye(2))]
    made = list(leaves)
    for _ in range(draw(st.integers(1, 12))):
        x, y = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        kind = draw(st.sampled_from(["add", "mul", "dot", "tanh", "transpose", "host", "there", "back", "scale"]))
        made.append(
            {
                "add": lambda x, y: x + y,
                "mul": lambda x, y: x * y,
                "dot": tt.dot,
                "tanh": lambda x, y: tt.tanh(x),
                "transpose": lambda x, y: x.T,
                "host": lambda x, y: tt.triu(x),
                "there": lambda x, y: FromPaper()(as_paper(x, "sheet")),
                "back": lambda x, y: FromPaper()(Recopy("far")(as_paper(y, "sheet"))),
                "scale": lambda x, y: x * y.sum(axis=0),
            }[kind](x, y)
        )
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    return leaves[:2], outputs


@pytest.mark.slow
@given(graphs())
@settings(max_examples=examples(40))
def test_random_graphs_compute_the_same_without_detours(made):
    inputs, outputs = made
    a, b = np.array([[0.5, -1.0], [2.0, 0.25]]), np.array([[1.0, 0.5], [-0.5, 0.1]])
    expected = theano.function(inputs, outputs, mode=PY, on_unused_input="ignore")(a, b)
    fgraph = lifted(inputs, outputs)
    no_detours(fgraph)
    for out, result in zip(values(fgraph, a, b), expected, strict=True):
        np.testing.assert_allclose(out, result, rtol=1e-12)
