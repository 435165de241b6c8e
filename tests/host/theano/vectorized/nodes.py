"""Computes nodes on whole arrays, with ``perform``, and with C code."""

from __future__ import annotations

import numpy as np
import theano

from optdb.host.theano.vectorized.registry import function_of


def by_whole_arrays(node, arrays):
    storage = [[None] for _ in node.outputs]
    function_of(node)(arrays, storage)
    return [cell[0] for cell in storage]


def by_perform(node, arrays):
    storage = [[None] for _ in node.outputs]
    node.op.prepare_node(node, None, None, "py")
    params = [node.params_type.filter(node.run_params())] if hasattr(node.op, "params_type") else []
    node.op.perform(node, arrays, storage, *params)
    return [cell[0] for cell in storage]


def by_c(node, arrays):
    inputs = list(dict.fromkeys(node.inputs))
    return theano.function(inputs, node.outputs, mode=theano.Mode("c", None), on_unused_input="ignore")(*arrays)


def numbers(shape, seed=0, dtype="float64"):
    return np.random.RandomState(seed).standard_normal(shape).astype(dtype)


def assert_alike(results, expected, rtol=1e-10, atol=1e-12):
    for result, other in zip(results, expected, strict=True):
        assert type(result) is np.ndarray and result.dtype == other.dtype
        np.testing.assert_allclose(result, other, rtol=rtol, atol=atol)
