"""Copies of a function keep the graph from which the function was compiled, and the user's choice of rewrites."""

from __future__ import annotations

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode

from optdb.pytensor.sources import mode_of_linker, source_of

v = pt.vector("v")


@pytest.fixture(autouse=True)
def python_default():
    """Make PyTensor's default the Python linker, which compiles nothing."""
    with pytensor.config.change_flags(linker="py"):
        yield


@pytest.mark.parametrize("name", ["OPENCL", "OPENCL_AUTO"])
def test_rewrites_of_the_user_are_kept(name):
    mode = get_mode(name).including("local_remove_all_assert").excluding("local_pow_specialize")
    f = pytensor.function([v], v.sum(), mode=mode)
    for function in (f, f.copy(), pickle.loads(pickle.dumps(f))):
        source = source_of(function.vm.jit_fn.fgraph)
        assert source.included == ("local_remove_all_assert",)
        assert source.excluded == ("local_pow_specialize",)
        query = mode_of_linker("py", source).provided_optimizer
        assert {"fast_run", "local_remove_all_assert"} <= set(query.include)


def test_copies_have_their_own_shared_variables_and_updates():
    total, other = pytensor.shared(np.zeros(2)), pytensor.shared(np.full(2, 5.0))
    f = pytensor.function([v], total + v, updates={total: total + v}, mode="OPENCL_AUTO")
    swapped, without = f.copy(swap={total: other}), f.copy(delete_updates=True)
    for number in range(3):
        np.testing.assert_array_equal(swapped(np.ones(2)), np.full(2, 6.0 + number))
        np.testing.assert_array_equal(f(np.ones(2)), np.full(2, 1.0 + number))
        assert len(source_of(without.vm.jit_fn.fgraph).outputs) == 1
    np.testing.assert_array_equal(other.get_value(), np.full(2, 8.0))
    np.testing.assert_array_equal(total.get_value(), np.full(2, 3.0))
    np.testing.assert_array_equal(without(np.ones(2)), np.full(2, 4.0))


def test_a_graph_that_no_mode_has_rewritten_is_its_own_source():
    fgraph = pytensor.graph.fg.FunctionGraph([v], [v * 2], clone=True)
    source = source_of(fgraph)
    assert source.inputs[0] is not fgraph.inputs[0]
    assert pytensor.function(source.inputs, source.outputs)(np.ones(2))[0].tolist() == [2.0, 2.0]
