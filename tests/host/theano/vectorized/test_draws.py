"""Uniform and multinomial draws on whole arrays agree with ``perform`` and C code."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.sandbox.multinomial import ChoiceFromUniform, MultinomialFromUniform
from theano.sandbox.rng_mrg import MRG_RandomStreams, mrg_uniform

from optdb.host.theano.vectorized.registry import function_of
from tests.host.theano.vectorized.nodes import assert_alike, by_c, by_perform, by_whole_arrays

DTYPES = ["float16", "float32", "float64"]
#: Numbers of streams and shapes of samples: no samples, fewer samples than streams, as many, a multiple, and numbers
#: between multiples.
SIZES = [(7, (0, 3)), (7, (5,)), (7, (7,)), (7, (3, 7)), (7, (4, 5)), (1, (9,)), (40, (2, 3, 50)), (7, ())]


def uniform(dtype, ndim, **options):
    kind = tt.TensorType(dtype, [False] * ndim)
    return mrg_uniform(kind, **options).make_node(tt.imatrix(), tt.lvector())


def state(streams, seed=3):
    return MRG_RandomStreams(seed).get_substream_rstates(streams, "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("streams, shape", SIZES, ids=str)
def test_uniform(streams, shape, dtype):
    node, before = uniform(dtype, len(shape)), state(streams)
    arrays = [before.copy(), np.array(shape, "int64")]
    results = by_whole_arrays(node, arrays)
    np.testing.assert_array_equal(arrays[0], before)
    assert_alike(results, by_perform(node, arrays), rtol=1.2e-7, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_as_in_c(dtype):
    node = uniform(dtype, 2)
    arrays = [state(40), np.array([50, 61])]
    for result, expected in zip(by_whole_arrays(node, arrays), by_c(node, arrays), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_states_at_the_ends():
    largest = np.array([[2**31 - 2] * 3 + [2**31 - 21070] * 3, [0, 0, 1, 0, 0, 1], [1] * 6], "int32")
    node = uniform("float64", 1)
    arrays = [largest, np.array([300])]
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays), rtol=0, atol=0)


def test_in_place():
    before = state(5)
    expected = by_perform(uniform("float64", 1), [before.copy(), np.array([12])])
    results = by_whole_arrays(uniform("float64", 1, inplace=True), [before, np.array([12])])
    assert results[0] is before
    assert_alike(results, expected)


@pytest.mark.parametrize("shape, message", [((2, 3), "length 1"), ((2**31,), "more than")])
def test_sizes_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        by_whole_arrays(uniform("float32", 1), [state(2), np.array(shape)])


@pytest.mark.parametrize("dtype", ["auto", "int64", "float32"])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("rows, outcomes", [(4, 5), (1, 1), (0, 3), (3, 2)])
def test_multinomial(rows, outcomes, samples, dtype):
    random = np.random.RandomState(1)
    weights = random.rand(rows, outcomes)
    arrays = [weights / weights.sum(axis=1, keepdims=True) + 1e-9, random.rand(rows * samples), samples]
    node = MultinomialFromUniform(dtype).make_node(tt.dmatrix(), tt.dvector(), theano.scalar.int64())
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))


def test_draws_at_and_beyond_limits():
    node = MultinomialFromUniform("int64").make_node(tt.dmatrix(), tt.dvector(), theano.scalar.int64())
    (counts,) = by_whole_arrays(node, [np.array([[0.25, 0.5]] * 3), np.array([0.25, 0.75, 0.0]), 1])
    np.testing.assert_array_equal(counts, [[0, 1], [0, 0], [1, 0]])


def test_other_number_of_draws():
    node = MultinomialFromUniform("int64").make_node(tt.dmatrix(), tt.dvector(), theano.scalar.int64())
    with pytest.raises(ValueError, match="unis"):
        by_whole_arrays(node, [np.ones((2, 1)), np.zeros(3), 1])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("rows, outcomes, samples", [(4, 5, 3), (3, 2, 2), (0, 3, 1), (2, 3, 0)])
def test_choice(rows, outcomes, samples, replace):
    random = np.random.RandomState(2)
    weights = random.rand(rows, outcomes)
    arrays = [weights / weights.sum(axis=1, keepdims=True), random.rand(rows * samples) * 0.99, samples]
    node = ChoiceFromUniform("int64", replace=replace).make_node(tt.dmatrix(), tt.dvector(), theano.scalar.int64())
    before = arrays[0].copy()
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))
    np.testing.assert_array_equal(arrays[0], before)


@pytest.mark.parametrize("samples, message", [(4, "bigger than"), (2, "unis")])
def test_choices_refused(samples, message):
    node = ChoiceFromUniform("auto").make_node(tt.dmatrix(), tt.dvector(), theano.scalar.int64())
    with pytest.raises(ValueError, match=message):
        by_whole_arrays(node, [np.ones((2, 3)), np.zeros(8 if samples == 4 else 3), samples])


def test_subclasses_with_their_own_code():
    class Reversed(mrg_uniform):
        def perform(self, node, inputs, storage, params):
            super().perform(node, inputs, storage, params)

    assert function_of(Reversed(tt.dvector).make_node(tt.imatrix(), tt.lvector())) is None
