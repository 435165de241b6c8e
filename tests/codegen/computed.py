"""Which products were computed by kernels of their own."""

from __future__ import annotations

import pytest

from optdb.codegen.gemm.families import Launches


def note_products(monkeypatch: pytest.MonkeyPatch) -> list[Launches]:
    """Return a list that gets what computes products from now on, if its kernels are not the function's."""
    computed: list[Launches] = []
    compute = Launches.compute

    def noting(self, *args):
        if self.kernels is not None:
            computed.append(self)
        return compute(self, *args)

    monkeypatch.setattr(Launches, "compute", noting)
    return computed
