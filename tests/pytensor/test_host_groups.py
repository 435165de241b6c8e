"""Nodes that the host computes are grouped into functions for any linker, without changing values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import optdb.pytensor
from optdb.pytensor import tracing
from tests.pytensor.comparing import compare, sort_on_host

RNG = np.random.default_rng(8)
x, v, k = pt.matrix("x"), pt.vector("v"), pt.lvector("k")
A = RNG.normal(size=(7, 6))


class Overwrite(Op):
    """An op that adds one to its input, in place."""

    __props__ = ()
    destroy_map: ClassVar = {0: [0]}

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        (value,) = inputs
        value += 1
        output_storage[0][0] = value


def steps(function):
    """Return the host's steps in a function's only plan."""
    ((_, plan),) = function.vm.jit_fn.function.traced_calls
    return plan.host_steps


def test_adjacent_nodes_are_one_function_with_two_transfers():
    ordered = sort_on_host(pt.exp(x), axis=0)
    f = compare([x], [sort_on_host(ordered, axis=1) * 2, ordered + 1], [A], on_host=2)
    (step,) = steps(f)
    assert step.moved_nbytes == 3 * A.nbytes
    assert "axis=1} by the linker 'py' moves" in optdb.pytensor.explain(f)


def test_small_nodes_between_those_of_the_host_join_them(monkeypatch):
    between = sort_on_host(pt.tanh(sort_on_host(x, axis=0)) * 2, axis=1)
    (step,) = steps(compare([x], between[:2] * 2, [A], on_host=2))
    assert len(step.work.nodes) > 2
    monkeypatch.setattr(tracing, "_SMALL_ELEMENTS", A.size - 1)
    f = compare([x], between[:2] * 2, [A], on_host=2)
    assert [len(step.work.nodes) for step in steps(f)] == [1, 1]


def test_a_node_whose_values_leave_it_to_the_host_joins_the_group_before_it():
    ordered = sort_on_host(x, axis=0)
    (step,) = steps(compare([x], ordered[ordered > 0].sum(), [A], on_host=2))
    assert step.outputs


def test_results_of_the_function_and_of_no_one_else():
    order, ordered = pt.argsort(v), sort_on_host(v)
    compare([v], [ordered, order, v[order] - ordered, order.sum()], [RNG.normal(size=9)], [np.zeros(0)], on_host=1)


def test_numbers_and_groups_within_inner_graphs():
    inner = OpFromGraph([v], [sort_on_host(pt.sqr(v))[::-1] * v])
    compare([v], [inner(v) + inner(v + 1), sort_on_host(v)[0]], [RNG.normal(size=9)], [RNG.normal(size=4)], on_host=2)


def test_graphs_within_graphs_share_variables_and_not_values():
    a, b = pt.vectors("a", "b")
    difference = OpFromGraph([a, b], [a - 2 * b])
    swapped = OpFromGraph([a, b], [difference(b, a) * a])
    compare([v], [swapped(v, v + 1), difference(v, v * v)], [RNG.normal(size=4)])
    looped = pytensor.scan(
        lambda row, h: swapped(h, row) * row, sequences=[x], outputs_info=[pt.ones(3)], return_updates=False
    )
    compare([x], looped, [RNG.normal(size=(5, 3))])


def test_an_op_that_overwrites_its_input_gets_a_copy():
    f = pytensor.function([v], [Overwrite()(v) * 2, sort_on_host(v)], mode="OPENCL", accept_inplace=True)
    given = np.arange(4.0)
    for _ in range(3):
        doubled, ordered = f(given)
        np.testing.assert_array_equal(doubled, 2 * np.arange(1.0, 5.0))
        np.testing.assert_array_equal(ordered, np.arange(4.0))
    np.testing.assert_array_equal(given, np.arange(4.0))


def test_each_call_advances_random_numbers_once():
    rng = pytensor.shared(np.random.default_rng(3))
    following, draws = pt.random.normal(size=(5,), rng=rng, return_next_rng=True)
    f = pytensor.function([], [draws, sort_on_host(draws * 2)], updates={rng: following}, mode="OPENCL")
    expected = np.random.default_rng(3)
    for _ in range(4):
        drawn, ordered = f()
        np.testing.assert_array_equal(drawn, expected.normal(size=5))
        np.testing.assert_allclose(ordered, np.sort(2 * drawn))


@pytest.mark.parametrize("host_linker", [["unknown", "py"]], indirect=True)
def test_a_linker_that_cannot_compile_gives_way_to_the_next():
    (step,) = steps(compare([x], sort_on_host(x, axis=0).sum(axis=1), [A], on_host=1))
    assert step.work.linker == "py"


@pytest.mark.parametrize("host_linker", [["unknown", "py"]], indirect=True)
def test_a_small_function_that_is_partly_compiled_for_the_host_is_so_as_a_whole(monkeypatch):
    outputs = [pt.exp(x), pt.tanh(sort_on_host(x, axis=0)), x]
    f = compare([x], outputs, [A], on_host=1)
    (step,) = steps(f)
    ((_, plan),) = f.vm.jit_fn.function.traced_calls
    assert not plan.device_work and step.moved_nbytes == 3 * A.nbytes
    monkeypatch.setattr(tracing, "_SMALL_ELEMENTS", A.size - 1)
    ((_, plan),) = compare([x], outputs, [A], on_host=1).vm.jit_fn.function.traced_calls
    assert plan.device_work


def test_errors_of_a_node_are_its_own():
    f = pytensor.function([x], pt.linalg.inv(x).sum(), mode="OPENCL")
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((3, 3)))
    assert f(np.eye(3)) == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.parametrize("host_linker", [["numba", "py"]], indirect=True)
def test_a_loop_and_its_gradient_are_one_function_of_numba():
    a = pt.scalar("a")
    volatility = pytensor.scan(
        lambda y, h, a: 0.1 + a * pt.linalg.inv(pt.outer(y, y) + h * pt.eye(2))[0, 0] + 0.8 * h,
        sequences=[x],
        outputs_info=[pt.ones(())],
        non_sequences=[a],
        return_updates=False,
    )
    total = pt.log(volatility).sum()
    outputs = [total, pytensor.grad(total, a)]
    f, g = (pytensor.function([x, a], outputs, mode=mode) for mode in ("OPENCL", Mode("py", None)))
    y = RNG.normal(size=(50, 2))
    np.testing.assert_allclose(f(y, 0.1), g(y, 0.1), rtol=1e-12)
    (step,) = steps(f)
    assert step.work.linker == "numba"


@pytest.mark.slow
@pytest.mark.parametrize("host_linker", [["numba", "py"]], indirect=True)
def test_what_numba_does_not_know_runs_in_python():
    f = pytensor.function([v], Overwrite()(sort_on_host(v)), mode="OPENCL", accept_inplace=True)
    np.testing.assert_array_equal(f(np.arange(3.0)), np.arange(1.0, 4.0))
