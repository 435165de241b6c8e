"""``theano.tensor.signal`` for Lasagne 0.1, with the submodule ``downsample`` that Theano 1.0 removed."""

import sys
from typing import Any

from theano.tensor import signal
from theano.tensor.signal import pool

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

downsample = sys.modules[__name__]


def max_pool_2d(
    input: Any,
    ds: Any,
    ignore_border: bool = False,
    st: Any = None,
    padding: tuple[int, int] = (0, 0),
    mode: str = "max",
) -> Any:
    """Pool the last two dimensions, with the parameter names and defaults of Theano 0.7."""
    return pool.pool_2d(input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode)


__getattr__, __dir__ = fall_back_to(signal, globals())
