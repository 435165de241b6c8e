"""Cached data of an op's C code keeps no function alive."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.graph import Apply
from theano.gof.op import Op


class WithoutCode(Op):
    """An op without C code that adds 1."""

    __props__ = ("number",)

    def __init__(self, number):
        self.number = number

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + self.number


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("number", [1, 2])
def test_an_op_without_c_code_keeps_no_function_alive(number):
    x = tt.dvector("x")
    f = theano.function([x], WithoutCode(number)(x) * 2)
    assert f(np.ones(2)).tolist() == [2.0 + 2 * number] * 2
    kept = weakref.ref(f.maker.fgraph)
    del f
    gc.collect()
    assert kept() is None
