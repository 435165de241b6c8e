"""The entries of special functions.

Incomplete gamma functions and Bessel functions of any order are computed in double precision whatever the output is,
as SciPy does and the host's C code: what they are made of nearly cancels.
"""

from __future__ import annotations

from optdb.codegen.scalars.step import ENTRIES, Entry, ScalarStep
from optdb.codegen.scalars.types import convert
from optdb.host import scalars as host


def _own(kind: str) -> Entry:
    return lambda step: step.call(kind)


def _double(kind: str) -> Entry:
    def call(step: ScalarStep) -> str:
        function = step.helpers.get(kind, "double", "ulong")
        return convert(f"{function}({', '.join(step.inputs('float64'))})", "float64", step.out)

    return call


ENTRIES.update(
    {
        host.Erfcinv: _own("erfcinv"),
        host.Erfcx: _own("erfcx"),
        host.Erfinv: _own("erfinv"),
        host.I0: _own("i0"),
        host.I1: _own("i1"),
        host.J0: _own("j0"),
        host.J1: _own("j1"),
        host.Psi: _own("psi"),
        host.TriGamma: _own("tri_gamma"),
        host.Chi2SF: _double("chi2sf"),
        host.GammaInc: _double("gammainc"),
        host.GammaIncC: _double("gammaincc"),
        host.GammaL: _double("gammal"),
        host.GammaU: _double("gammau"),
        host.Iv: _double("iv"),
        host.Jv: _double("jv"),
    }
)
