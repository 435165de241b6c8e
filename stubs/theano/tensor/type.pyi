from collections.abc import Sequence
from typing import Any

import numpy as np
from _typeshed import Incomplete
from theano.gof.type import Type

class TensorType(Type):
    dtype: str
    broadcastable: tuple[bool, ...]
    ndim: int
    name: str | None
    numpy_dtype: np.dtype[Any]
    sparse_grad: bool
    def __init__(
        self, dtype: str, broadcastable: Sequence[bool], name: str | None = ..., sparse_grad: bool = ...
    ) -> None: ...
    def clone(self, dtype: str | None = ..., broadcastable: Sequence[bool] | None = ...) -> TensorType: ...

def __getattr__(name: str) -> Incomplete: ...
