from typing import Any

from _typeshed import Incomplete
from theano.gof.op import Op
from theano.tensor.var import TensorVariable

class MRG_RandomStreams:
    state_updates: Incomplete
    default_instance_seed: Incomplete
    rstate: Incomplete
    def __init__(self, seed: Incomplete = ...) -> None: ...
    def uniform(self, size: Any, low: Any = ..., high: Any = ..., **kwargs: Any) -> TensorVariable: ...
    def binomial(self, size: Any = ..., n: Any = ..., p: Any = ..., **kwargs: Any) -> TensorVariable: ...
    def normal(self, size: Any, avg: Any = ..., std: Any = ..., **kwargs: Any) -> TensorVariable: ...

class mrg_uniform_base(Op):
    output_type: Incomplete
    inplace: bool
    warned_numpy_version: Incomplete
    def __init__(self, output_type: Incomplete, inplace: bool = ...) -> None: ...

class mrg_uniform(mrg_uniform_base): ...

def __getattr__(name: str) -> Incomplete: ...
