"""Detects which products were computed by other kernels than the function's own."""

from __future__ import annotations

import pytest

from optdb.codegen.gemm.families import Launches


def note_products(monkeypatch: pytest.MonkeyPatch) -> list[Launches]:
    """Return a list of the objects that compute products from now on with kernels that are not the function's."""
    computed: list[Launches] = []
    compute = Launches.compute

    def noting(self, *args):
        if self.kernels is not None:
            computed.append(self)
        return compute(self, *args)

    monkeypatch.setattr(Launches, "compute", noting)
    return computed
