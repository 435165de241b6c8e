from _typeshed import Incomplete
from theano.gof.op import OpenMPOp

class BaseCorr3dMM(OpenMPOp):
    border_mode: Incomplete
    subsample: tuple[int, ...]
    filter_dilation: tuple[int, ...]
    num_groups: int
    blas_type: Incomplete
    def __init__(
        self,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_dilation: tuple[int, ...] = ...,
        openmp: bool | None = ...,
        num_groups: int = ...,
    ) -> None: ...

class Corr3dMM(BaseCorr3dMM): ...
class Corr3dMM_gradInputs(BaseCorr3dMM): ...
class Corr3dMM_gradWeights(BaseCorr3dMM): ...

def __getattr__(name: str) -> Incomplete: ...
