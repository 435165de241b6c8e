"""The leaner canonizers give the same results as Theano's."""

from __future__ import annotations

import pytest
import theano
import theano.tensor as tt
from hypothesis import given
from hypothesis import strategies as st
from theano.gof import FunctionGraph
from theano.gof.graph import io_toposort
from theano.scan_module.scan_utils import equal_computations
from theano.tensor.opt import Canonizer, local_add_canonizer, local_greedy_distributor, local_mul_canonizer

import optdb
from optdb.host.api.facts import facts_of
from optdb.host.api.session import optimizing
from optdb.host.theano.speedups import algebra
from tests.topo.graphs import uncached_constants

STOCK = {name: vars(Canonizer)[name] for name in ("get_num_denum", "simplify", "simplify_constants", "transform")}
X, Y, Z = tt.dmatrix("x"), tt.dvector("y"), tt.fscalar("z")
with uncached_constants():
    CONSTANTS = [tt.constant(value) for value in (0, 1, 1.0, 0.5, -2, 3.0, [1.0, 1.0])]


def expressions():
    leaves = st.sampled_from([X, Y, Z, Y.dimshuffle("x", 0), Y.dimshuffle(0, "x"), *CONSTANTS])

    def extend(smaller):
        return st.one_of(
            st.builds(tt.add, smaller, smaller),
            st.builds(tt.mul, smaller, smaller, smaller),
            st.builds(tt.sub, smaller, smaller),
            st.builds(tt.true_div, smaller, smaller),
            st.builds(tt.neg, smaller),
            st.builds(tt.inv, smaller),
            st.builds(tt.exp, smaller),
            st.builds(abs, smaller),
        )

    return st.recursive(leaves, extend, max_leaves=9)


def stock_transform(canonizer, node):
    """Return the result of Theano's own canonizer; check that its methods are not replaced."""
    assert vars(Canonizer)["transform"] is STOCK["transform"]
    return canonizer.transform(node)


@pytest.mark.slow
@given(expressions())
def test_it_offers_what_stock_offers(expression):
    """At each node, both canonizers return the same as Theano's own canonizers, even if they change nothing."""
    fgraph = FunctionGraph([X, Y, Z], [expression], clone=False)
    try:
        for node in fgraph.toposort():
            for canonizer in (local_add_canonizer, local_mul_canonizer):
                with uncached_constants():
                    theirs = stock_transform(canonizer, node)
                with optimizing(), uncached_constants():
                    for _ in range(2):  # the second answer may be cached
                        ours = canonizer.transform(node)
                        assert bool(ours) == bool(theirs)
                        if ours:
                            assert ours[0].type == theirs[0].type
                            assert equal_computations(ours, theirs)
    finally:
        fgraph.disown()


@given(expressions())
def test_it_takes_expressions_apart_as_stock_does(expression):
    for canonizer in (local_add_canonizer, local_mul_canonizer):
        assert algebra.get_num_denum(canonizer, expression) == STOCK["get_num_denum"](canonizer, expression)
    algebra.forget()


@given(expressions(), st.lists(expressions(), min_size=1, max_size=3))
def test_no_sum_is_held_back_that_takes_a_factor_in(expression, factors):
    guard = facts_of(local_greedy_distributor).guard
    for product in (tt.mul(expression, *factors), tt.true_div(factors[0], tt.mul(expression, *factors[1:]))):
        for node in io_toposort([], [product]):
            if local_greedy_distributor.transform(node):
                assert guard(node)
    algebra.forget()


def test_a_sum_is_held_back_whose_terms_would_get_longer():
    guard = facts_of(local_greedy_distributor).guard
    with uncached_constants():
        assert not guard(((2 * X + Y) * 3 * Z).owner)  # 2X would still have one constant, but Y would get one
        assert not guard((X * Y / (2 * X + 3 * Z)).owner)
        assert guard(((2 * X + Y / 3) * 3 * Z).owner)
        assert guard(((X / Y + Z) * Y).owner)
    algebra.forget()


@pytest.mark.slow
def test_a_long_chain_is_no_problem():
    """Stock Theano would traverse this chain recursively, and exceed the recursion limit."""
    total = X
    for _ in range(20_000):
        total = tt.add(total, X)
    num, denum = algebra.get_num_denum(local_add_canonizer, total)
    algebra.forget()
    assert len(num) == 20_001 and set(num) == {X} and not denum


def test_a_simplifier_of_a_third_party_is_asked_though_nothing_changes():
    asked = []

    def simplifier(num, denum):
        asked.append((num, denum))
        return num, denum

    canonizer = Canonizer(tt.mul, tt.true_div, tt.inv, tt.opt.mul_calculate, False)
    canonizer.add_simplifier(simplifier, "test")
    fgraph = FunctionGraph([X, Y], [tt.mul(X, Y)], clone=False)
    with optimizing():
        assert canonizer.transform(fgraph.outputs[0].owner) is False
    assert len(asked) == 1


def test_the_methods_are_theano_s_own_outside_a_session():
    with optimizing():
        assert vars(Canonizer)["transform"] is algebra.transform
    assert {name: vars(Canonizer)[name] for name in STOCK} == STOCK


def test_values_stay():
    """The optimized and the unoptimized function of a ratio of products with constants return the same values."""
    out = (2.0 * X * Y / (4.0 * Y * Z)) - (Z - X) + 0.5
    plain = theano.function([X, Y, Z], out, mode=theano.Mode("py", None))
    with_engine = theano.function([X, Y, Z], out, mode=optdb.mode(theano.Mode("py", "fast_run")))
    args = [[[1.0, 2.0], [3.0, 4.0]], [0.5, 0.25], 2.0]
    assert abs(plain(*args) - with_engine(*args)).max() < 1e-12
