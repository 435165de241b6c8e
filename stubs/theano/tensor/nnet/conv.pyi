from _typeshed import Incomplete
from theano.gof.op import OpenMPOp

class ConvOp(OpenMPOp):
    imshp: Incomplete
    kshp: Incomplete
    nkern: Incomplete
    bsize: Incomplete
    dx: Incomplete
    dy: Incomplete
    verbose: Incomplete
    version: Incomplete
    direction_hint: Incomplete
    kshp_logical_top_aligned: Incomplete
    unroll_batch: Incomplete
    unroll_kern: Incomplete
    unroll_patch: Incomplete
    outshp: Incomplete
    fulloutshp: Incomplete
    out_mode: Incomplete
    fft_opt: Incomplete
    imshp_logical: Incomplete
    kshp_logical: Incomplete
    def __init__(
        self,
        imshp: Incomplete = ...,
        kshp: Incomplete = ...,
        nkern: Incomplete = ...,
        bsize: Incomplete = ...,
        dx: Incomplete = ...,
        dy: Incomplete = ...,
        output_mode: Incomplete = ...,
        unroll_batch: Incomplete = ...,
        unroll_kern: Incomplete = ...,
        unroll_patch: Incomplete = ...,
        imshp_logical: Incomplete = ...,
        kshp_logical: Incomplete = ...,
        kshp_logical_top_aligned: Incomplete = ...,
        verbose: Incomplete = ...,
        version: Incomplete = ...,
        direction_hint: Incomplete = ...,
        openmp: bool | None = ...,
    ) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
