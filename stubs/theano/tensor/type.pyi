from collections.abc import Iterable
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
        self, dtype: str, broadcastable: Iterable[bool], name: str | None = ..., sparse_grad: bool = ...
    ) -> None: ...
    def clone(self, dtype: str | None = ..., broadcastable: Iterable[bool] | None = ...) -> TensorType: ...
    @staticmethod
    def values_eq_approx(
        a: Any,
        b: Any,
        allow_remove_inf: bool = ...,
        allow_remove_nan: bool = ...,
        rtol: float | None = ...,
        atol: float | None = ...,
    ) -> bool: ...

def __getattr__(name: str) -> Incomplete: ...
