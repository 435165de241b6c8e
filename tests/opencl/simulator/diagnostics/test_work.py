"""Profiles count the floating-point operations of products, and of reductions with prologues and epilogues, exactly."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb


def counts(inputs, outputs, *args, kind):
    """Return the number of operations that a profile shows for each node of a class."""
    function = theano.function(inputs, outputs, mode=theano.Mode(linker="py", optimizer="fast_run"))
    rows = optdb.SimulatorOCL(function, device="dev0").profile(*args, n=1).rows
    return [row.operations for row in rows if row.op.startswith(kind) and row.operations is not None]


def ones(*shape):
    return np.ones(shape, "float32")


def test_reduction_of_one_array():
    x = tt.fmatrix("x")
    assert counts([x], x.sum(axis=0), ones(5, 7), kind="OpenCLCAReduce") == [5 * 7]


def test_reduction_of_a_product_that_broadcasts():
    x, y = tt.fmatrix("x"), tt.frow("y")
    # There are one multiplication and one addition for each element of the broadcast inputs.
    assert counts([x, y], (x * y).sum(axis=0), ones(5, 7), ones(1, 7), kind="OpenCLCAReduce") == [2 * 5 * 7]


def test_reduction_with_an_epilogue_on_arrays_of_the_results_shape():
    x, scale = tt.fmatrix("x"), tt.fvector("scale")
    (count,) = counts([x, scale], x.sum(axis=1) * np.float32(3) + scale, ones(5, 7), ones(5), kind="OpenCLCAReduce")
    # There are one multiplication and one addition for each of the five results.
    assert count == 5 * 7 + 2 * 5


@pytest.mark.slow
def test_batch_normalization():
    x, gamma, beta = tt.ftensor4("x"), tt.fvector("gamma"), tt.fvector("beta")
    mean, deviation = x.mean(axis=(0, 2, 3), keepdims=True), x.std(axis=(0, 2, 3), keepdims=True)
    shaped = [v.dimshuffle("x", 0, "x", "x") for v in (gamma, beta)]
    normal = (x - mean) / (deviation + 1e-3) * shaped[0] + shaped[1]
    averages = mean.dimshuffle(1) * 0.9 + beta * 0.1
    shape = (2, 3, 4, 5)
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    found = counts([x, gamma, beta], [normal, averages], data, ones(3), ones(3), kind="OpenCLCAReduce")
    assert len(found) == 2 and all(count >= np.prod(shape) for count in found)


@pytest.mark.parametrize("shapes, count", [(((4, 2, 3), (4, 3, 5)), 2 * 4 * 2 * 3 * 5), (((0, 2, 3), (0, 3, 5)), 0)])
def test_batched_product(shapes, count):
    x, y = tt.ftensor3("x"), tt.ftensor3("y")
    found = counts([x, y], tt.batched_dot(x, y), *[ones(*shape) for shape in shapes], kind="OpenCLBatchedDot")
    assert sum(found) == count
