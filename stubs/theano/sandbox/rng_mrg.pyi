from _typeshed import Incomplete
from theano.gof.op import Op

class MRG_RandomStreams:
    state_updates: Incomplete
    default_instance_seed: Incomplete
    rstate: Incomplete
    def __init__(self, seed: Incomplete = ...) -> None: ...

class mrg_uniform_base(Op):
    output_type: Incomplete
    inplace: bool
    warned_numpy_version: Incomplete
    def __init__(self, output_type: Incomplete, inplace: bool = ...) -> None: ...

class mrg_uniform(mrg_uniform_base): ...

def __getattr__(name: str) -> Incomplete: ...
