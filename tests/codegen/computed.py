"""Detects which products were computed by kernels other than the function's own."""

from __future__ import annotations

import pytest

from optdb.codegen.gemm import products
from optdb.codegen.gemm.families import PreparedChoice


def note_products(monkeypatch: pytest.MonkeyPatch) -> list[PreparedChoice]:
    """Return a list to which each product adds its prepared choice, unless it uses the function's own kernels."""
    computed: list[PreparedChoice] = []
    compute = products.compute

    def noting(product, *args):
        if product.kernels is not None:
            computed.append(product)
        return compute(product, *args)

    monkeypatch.setattr(products, "compute", noting)
    return computed
