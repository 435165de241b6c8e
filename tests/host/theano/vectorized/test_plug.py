"""Nodes are computed on whole arrays only under some conditions."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.vm import VM_Linker
from theano.tensor.elemwise import Elemwise

import optdb
from optdb.host.api import folding
from optdb.host.theano.vectorized import plug


@pytest.fixture
def computed(monkeypatch):
    """Return a list of the ops whose nodes are computed on whole arrays."""
    ops = []
    function_of = plug.function_of

    def record(node):
        function = function_of(node)
        if function is not None:
            ops.append(node.op)
        return function

    monkeypatch.setattr(plug, "function_of", record)
    return ops


def compiled(mode):
    x = tt.dvector()
    return theano.function([x], tt.exp(x) + 1, mode=mode)


IN_PYTHON = VM_Linker(use_cloop=False, c_thunks=False)


def test_python_thunks_of_the_engine(computed):
    f = compiled(optdb.mode(theano.Mode(IN_PYTHON, "fast_run")))
    assert computed
    np.testing.assert_allclose(f([1.0, 2]), np.exp([1, 2]) + 1)


def test_python_thunks_while_the_engine_is_enabled(computed):
    with optdb.enable():
        compiled(theano.Mode(IN_PYTHON, None))
    assert computed


def test_not_without_the_engine(computed):
    compiled(theano.Mode(IN_PYTHON, "fast_run"))
    assert not computed


def test_the_linker_py_is_the_reference(computed):
    with optdb.enable():
        compiled(theano.Mode("py", None))
    assert not computed


def test_what_has_c_code_uses_it(computed):
    with optdb.enable():
        compiled(theano.Mode("cvm", None))
    assert not any(isinstance(op, Elemwise) for op in computed)


def test_a_thunk_that_is_asked_for_in_python(computed):
    x = tt.dvector()
    node = tt.exp(x).owner
    storage, flags = {x: [np.ones(3)], node.outputs[0]: [None]}, {x: [True], node.outputs[0]: [False]}
    with optdb.enable():
        thunk = node.op.make_thunk(node, storage, flags, [], impl="py")
    thunk()
    assert computed and flags[node.outputs[0]] == [True]
    np.testing.assert_allclose(storage[node.outputs[0]][0], np.exp(np.ones(3)))


def test_the_inner_function_of_a_scan_without_a_compiler(computed):
    x = tt.dvector()
    with optdb.enable(), theano.configparser.change_flags(cxx=""):
        out, _ = theano.scan(lambda element, total: tt.tanh(total + element) * 2, x, tt.zeros(()))
        f = theano.function([x], out, mode=theano.Mode(IN_PYTHON, "fast_run"))
    expected, total = [], 0.0
    for element in (0.5, 1.0, -2.0):
        total = np.tanh(total + element) * 2
        expected.append(total)
    np.testing.assert_allclose(f([0.5, 1, -2]), expected)
    assert any("tanh" in str(op) for op in computed)


@pytest.mark.parametrize("size, expected", [(3, 0), (1000, 1)])
def test_small_constants_are_folded_by_perform(computed, size, expected):
    node = tt.exp(tt.constant(np.linspace(0, 1, size))).owner
    with optdb.enable():
        (constant,) = folding.fold_node(node)
    np.testing.assert_allclose(constant.data, np.exp(np.linspace(0, 1, size)))
    assert len(computed) == expected


class Halved(Elemwise):
    """A user's op with its own implementation."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] / 2


def test_a_perform_of_a_subclass_is_kept(computed):
    x = tt.dvector()
    with optdb.enable():
        f = theano.function([x], Halved(theano.scalar.exp)(x), mode=theano.Mode(IN_PYTHON, None))
    np.testing.assert_array_equal(f([4.0]), [2])
    assert not computed
