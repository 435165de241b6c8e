"""Copies and casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.theano.vectorized.scalar_kernels.entries import Entry, copy, in_own_dtypes


def _copy_second(x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y, casting="unsafe")


#: Entries of ops that have another rule.
SPECIAL: dict[type, Entry] = {
    scalars.Cast: in_own_dtypes(copy),
    scalars.Identity: in_own_dtypes(copy),
    scalars.Second: in_own_dtypes(_copy_second),
}
