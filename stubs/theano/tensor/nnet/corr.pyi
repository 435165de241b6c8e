from _typeshed import Incomplete
from theano.gof.op import OpenMPOp

class BaseCorrMM(OpenMPOp):
    border_mode: Incomplete
    subsample: tuple[int, ...]
    filter_dilation: tuple[int, ...]
    num_groups: int
    unshared: bool
    blas_type: Incomplete
    def __init__(
        self,
        border_mode: Incomplete = ...,
        subsample: tuple[int, ...] = ...,
        filter_dilation: tuple[int, ...] = ...,
        num_groups: int = ...,
        unshared: bool = ...,
        openmp: bool | None = ...,
    ) -> None: ...

class CorrMM(BaseCorrMM): ...
class CorrMM_gradInputs(BaseCorrMM): ...
class CorrMM_gradWeights(BaseCorrMM): ...

def __getattr__(name: str) -> Incomplete: ...
