"""Numbers of the host that are worked out from sizes before they are uploaded, such as one by the size of a batch.

Each has a name, so that a file can say what is to be computed, and a dtype, in which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: By name, what computes a number from one or two others.
HOST_SCALAR_OPS: dict[str, Callable[..., Any]] = {
    "cast": np.positive,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "true_div": np.true_divide,
    "int_div": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": np.negative,
    "abs": np.absolute,
    "inv": np.reciprocal,
    "sqr": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "floor": np.floor,
    "ceil": np.ceil,
}


def host_scalar(name: str, dtype: str, *values: Any) -> Any:
    """Compute a number by one of `HOST_SCALAR_OPS`, in a dtype to which all values are brought first."""
    with np.errstate(all="ignore"):
        given = [np.asarray(value).astype(dtype) for value in values]
        return np.asarray(HOST_SCALAR_OPS[name](*given)).astype(dtype)[()]
