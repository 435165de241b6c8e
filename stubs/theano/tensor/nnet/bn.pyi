from _typeshed import Incomplete
from theano.gof.op import Op

class AbstractBatchNormInference(Op):
    axes: tuple[int, ...]
    def __init__(self, axes: tuple[int, ...] = ...) -> None: ...

class AbstractBatchNormTrain(Op):
    axes: tuple[int, ...]
    def __init__(self, axes: tuple[int, ...] = ...) -> None: ...

class AbstractBatchNormTrainGrad(Op):
    axes: tuple[int, ...]
    def __init__(self, axes: tuple[int, ...] = ...) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
