from collections.abc import Sequence
from typing import Any

from _typeshed import Incomplete
from theano.gof.op import OpenMPOp

class PoolGrad(OpenMPOp):
    ignore_border: bool
    mode: str
    ndim: int
    def __init__(self, ignore_border: bool, mode: str = ..., ndim: int = ..., openmp: bool | None = ...) -> None: ...

class AveragePoolGrad(PoolGrad):
    def __init__(self, ignore_border: bool, mode: str = ..., ndim: int = ...) -> None: ...

class DownsampleFactorMaxGradGrad(OpenMPOp):
    ignore_border: bool
    mode: str
    ndim: int
    def __init__(self, ignore_border: bool, mode: str = ..., ndim: int = ..., openmp: bool | None = ...) -> None: ...

class MaxPoolGrad(PoolGrad):
    def __init__(self, ignore_border: bool, ndim: int = ..., openmp: bool | None = ...) -> None: ...

class MaxPoolRop(OpenMPOp):
    ignore_border: bool
    mode: str
    ndim: int
    def __init__(
        self, ignore_border: bool = ..., mode: str = ..., ndim: int = ..., openmp: bool | None = ...
    ) -> None: ...

class Pool(OpenMPOp):
    ignore_border: bool
    mode: str
    ndim: int
    def __init__(
        self, ignore_border: bool = ..., mode: str = ..., ndim: int = ..., openmp: bool | None = ...
    ) -> None: ...
    @staticmethod
    def out_shape(
        imgshape: Sequence[Any],
        ws: Any = ...,
        ignore_border: bool = ...,
        stride: Any = ...,
        pad: Any = ...,
        ndim: int = ...,
    ) -> list[Any]: ...

def __getattr__(name: str) -> Incomplete: ...
