"""Scalar operations that can fold elements in any order, and their results if there are no elements."""

from __future__ import annotations

import numpy as np

from optdb.codegen.scalars.types import literal

#: Maps a scalar op to the result of folding no elements with it. For ops that are not in this mapping, NumPy raises an
#: error. A "product without zeros" multiplies the nonzero elements; it is 0 if all elements are 0.
NOTHING = {"Add": 0, "Mul": 1, "MulWithoutZeros": 0, "OR": 0, "XOR": 0, "AND": -1}
#: The scalar ops that can fold elements in any order.
FOLDS = (*NOTHING, "Maximum", "Minimum")


def identity_of(fold: str, dtype: str) -> str:
    """Return the identity element of a fold, in OpenCL C."""
    if fold == "AND":
        return literal(1 if dtype == "bool" else np.asarray(-1).astype(dtype), dtype)
    if fold in NOTHING:
        return literal(NOTHING[fold], dtype)
    largest = fold == "Minimum"
    if dtype.startswith("float"):
        return literal(np.inf if largest else -np.inf, dtype)
    if dtype == "bool":
        return literal(largest, dtype)
    return literal(np.iinfo(dtype).max if largest else np.iinfo(dtype).min, dtype)
