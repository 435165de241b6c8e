from _typeshed import Incomplete
from theano.gof.op import PureOp

class Scan(PureOp):
    inputs: Incomplete
    outputs: Incomplete
    info: Incomplete
    output_types: Incomplete
    mode_instance: Incomplete
    mintaps: Incomplete
    seqs_arg_offset: Incomplete
    shared_arg_offset: Incomplete
    nit_sot_arg_offset: Incomplete
    n_outs: Incomplete
    n_tap_outs: Incomplete
    var_mappings: Incomplete
    vector_seqs: Incomplete
    vector_outs: Incomplete
    inps_is_tensor: Incomplete
    outs_is_tensor: Incomplete
    t_call: Incomplete
    t_fn: Incomplete
    name: str | None
    allow_gc: Incomplete
    mitmots_preallocated: Incomplete
    fn: Incomplete
    def __init__(
        self, inputs: Incomplete, outputs: Incomplete, info: Incomplete, typeConstructor: Incomplete = ...
    ) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
