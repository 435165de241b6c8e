"""Theano's passes that search whole graphs only run if there is something to find."""

from __future__ import annotations

import io

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import FunctionGraph
from theano.tensor.nnet import nnet
from theano.tensor.opt import FusionOptimizer, local_add_mul_fusion

from optdb.host.api.session import optimizing

x, y = tt.dvectors("x", "y")


def fused(make):
    """Run Theano's pass and the patched pass; return the numbers of remaining nodes, and the patched pass's profile."""
    left = []
    for is_patched in (False, True):
        fgraph = FunctionGraph([x, y], [make()], clone=True)
        if is_patched:
            with optimizing():
                profile = FusionOptimizer(local_add_mul_fusion).optimize(fgraph)
        else:
            FusionOptimizer(local_add_mul_fusion).optimize(fgraph)
        left.append([str(node) for node in fgraph.toposort()])
    return *left, profile


@pytest.mark.parametrize(
    ("make", "is_fused"),
    [
        (lambda: tt.exp(x + y) + x, False),
        (lambda: (x + y) * x, False),
        (lambda: (x + y) + x, True),
        (lambda: tt.exp(x * (x * (y * 2.0))), True),
        (lambda: tt.exp(x + y) * ((x + y) + x), True),
        (lambda: x - (x - y), False),
    ],
)
def test_sums_of_sums_are_fused(make, is_fused):
    by_theano, ours, profile = fused(make)
    assert ours == by_theano
    assert bool(profile[2]) == is_fused
    if not is_fused:
        FusionOptimizer.print_profile(io.StringIO(), profile)


def test_a_term_with_other_users_is_not_fused():
    term = x + y
    assert fused(lambda: (term + x) * tt.exp(term))[2][2] == 0


@pytest.mark.parametrize(
    ("rewriter", "softmax"),
    [
        (nnet.crossentropy_to_crossentropy_with_softmax, lambda m: nnet.softmax_op(m)),
        (nnet.crossentropy_to_crossentropy_with_softmax_with_bias, lambda m: nnet.softmax_with_bias(m, y)),
    ],
)
def test_crossentropy_is_found(rewriter, softmax, monkeypatch):
    m, i = tt.dmatrix("m"), tt.lvector("i")
    loss = nnet.crossentropy_categorical_1hot(softmax(m), i)
    fgraph = FunctionGraph([m, y, i], [loss, tt.exp(m)], clone=True)
    without = FunctionGraph([m], [tt.exp(m)], clone=True)
    with optimizing():
        rewriter.optimize(fgraph)
        monkeypatch.setattr(FunctionGraph, "toposort", lambda self: pytest.fail("a graph without it was sorted"))
        rewriter.optimize(without)
        monkeypatch.undo()
    assert nnet.crossentropy_softmax_argmax_1hot_with_bias in [node.op for node in fgraph.toposort()]
    assert len(without.apply_nodes) == 1


def test_all_of_it_gives_the_same_numbers():
    value = theano.function([x, y], (x + (y + x)) * (x * y), mode="TOPO")([1.0, 2.0], [3.0, 4.0])
    np.testing.assert_allclose(value, [15.0, 64.0])
