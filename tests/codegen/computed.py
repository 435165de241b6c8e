"""Detects which products were computed by kernels other than the function's own."""

from __future__ import annotations

import pytest

from optdb.codegen.gemm.families import Launches


def note_products(monkeypatch: pytest.MonkeyPatch) -> list[Launches]:
    """Return a list that records each object that computes a product with kernels other than the function's own."""
    computed: list[Launches] = []
    compute = Launches.compute

    def noting(self, *args):
        if self.kernels is not None:
            computed.append(self)
        return compute(self, *args)

    monkeypatch.setattr(Launches, "compute", noting)
    return computed
