"""The module theano.tensor.signal.downsample, which Theano 1.0 dropped, and Lasagne 0.1 imports."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

NAME = "theano.tensor.signal.downsample"


def install_downsample() -> None:
    """Make the module importable, where Theano does not have it."""
    from theano.tensor import signal

    if hasattr(signal, "downsample") or importlib.util.find_spec(NAME) is not None:
        return
    module = types.ModuleType(NAME, __doc__)
    module.max_pool_2d = max_pool_2d
    sys.modules[NAME] = signal.downsample = module


def max_pool_2d(
    input: Any,
    ds: Any,
    ignore_border: bool = False,
    st: Any = None,
    padding: tuple[int, int] = (0, 0),
    mode: str = "max",
) -> Any:
    """Do what Theano 0.7's max_pool_2d did."""
    from theano.tensor.signal.pool import pool_2d

    return pool_2d(input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode)
