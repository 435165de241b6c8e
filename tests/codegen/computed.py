"""Records the matrix products that use other kernels than those with which the function was compiled."""

from __future__ import annotations

import pytest

from optdb.codegen.gemm import products
from optdb.codegen.gemm.families import PreparedChoice


def note_products(monkeypatch: pytest.MonkeyPatch) -> list[PreparedChoice]:
    """Return a list that receives the prepared choice of each product that uses other kernels than the function's."""
    computed: list[PreparedChoice] = []
    compute = products.compute

    def noting(product, *args):
        if product.kernels is not None:
            computed.append(product)
        return compute(product, *args)

    monkeypatch.setattr(products, "compute", noting)
    return computed
