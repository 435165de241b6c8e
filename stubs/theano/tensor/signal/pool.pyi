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

def __getattr__(name: str) -> Incomplete: ...
