"""Gradients of products with a sparse matrix, computed on whole arrays, agree with ``perform``."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import theano.tensor as tt
from theano import sparse
from theano.sparse.basic import StructuredDotGradCSC, StructuredDotGradCSR

from optdb.host.theano.vectorized import structured_dots
from optdb.host.theano.vectorized.registry import function_of
from tests.host.theano.vectorized.nodes import assert_alike, by_perform, by_whole_arrays, numbers


def node_of(kind, dtype="float64", b=None):
    op = StructuredDotGradCSC() if kind == "csc" else StructuredDotGradCSR()
    matrix = tt.TensorType(dtype, [False] * 2)
    return op.make_node(tt.ivector(), tt.ivector(), matrix() if b is None else b, matrix())


@pytest.mark.parametrize("kind", ["csc", "csr"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape, width", [((5, 7), 3), ((1, 4), 1), ((6, 2), 0), ((0, 3), 2)])
def test_gradient(shape, width, dtype, kind, monkeypatch):
    monkeypatch.setattr(structured_dots, "_BLOCK", 8)  # several blocks
    a = scipy.sparse.random(*shape, 0.4, kind, random_state=1)
    b, top = numbers((shape[1], width), 1, dtype), numbers((shape[0], width), 2, dtype)
    arrays = [a.indices.astype("int32"), a.indptr.astype("int32"), b, top]
    node = node_of(kind, dtype)
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays), rtol=1e-5 if dtype == "float32" else 1e-10)


def test_elements_beyond_the_last_row():
    arrays = [np.array([0, 1, 1], "int32"), np.array([0, 1, 2], "int32"), numbers((2, 3)), numbers((2, 3), 1)]
    node = node_of("csr")
    assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))


def test_other_columns():
    arrays = [np.array([0], "int32"), np.array([0, 1], "int32"), numbers((1, 3)), numbers((1, 1))]
    with pytest.raises(ValueError, match="columns"):
        by_whole_arrays(node_of("csc"), arrays)


def test_sparse_operands():
    assert function_of(node_of("csc", b=sparse.csc_matrix("b"))) is None
