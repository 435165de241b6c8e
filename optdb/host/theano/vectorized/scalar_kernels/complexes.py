"""Complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.theano.vectorized.scalar_kernels.entries import Entry, in_out_dtype, in_own_dtypes


def _real(x: Any, out: Any) -> None:
    np.copyto(out, x.real)


def _imag(x: Any, out: Any) -> None:
    np.copyto(out, x.imag)


def _angle(x: Any, out: Any) -> None:
    out[...] = np.angle(x)


def _complex(x: Any, y: Any, out: Any) -> None:
    real, imag = x.copy(), y.copy()
    out.real = real
    out.imag = imag


def _from_polar(radius: Any, theta: Any, out: Any) -> None:
    if np.any(radius < 0):
        raise ValueError("polar radius must be non-negative", radius)
    real, imag = radius * np.cos(theta), radius * np.sin(theta)
    out.real = real
    out.imag = imag


#: Entries of ops whose operands are converted to the dtype of the result.
CONVERTING: dict[type, Entry] = {
    scalars.Conj: in_out_dtype(np.conjugate),
}
#: Entries of ops with other conversion rules.
SPECIAL: dict[type, Entry] = {
    scalars.Real: in_own_dtypes(_real),
    scalars.Imag: in_own_dtypes(_imag),
    scalars.Angle: in_own_dtypes(_angle, in_place=False),
    scalars.Complex: in_own_dtypes(_complex, in_place=False),
    scalars.ComplexFromPolar: in_own_dtypes(_from_polar, in_place=False),
}
