from collections.abc import Callable, Sequence
from typing import Any

from _typeshed import Incomplete
from theano.compile.mode import Mode
from theano.gof.graph import Apply, Variable
from theano.gof.op import PureOp
from theano.gof.type import Type

class Scan(PureOp):
    inputs: list[Variable]
    outputs: list[Variable]
    info: dict[str, Any]
    output_types: list[Type]
    mode: Any
    mode_instance: Mode
    typeConstructor: Callable[..., Type] | None
    name: str | None
    # The compiled loop, and how it treats its memory; from make_thunk on.
    fn: Any
    # What Scan reads from `info`.
    n_seqs: int
    n_mit_mot: int
    n_mit_mot_outs: int
    n_mit_sot: int
    n_sit_sot: int
    n_shared_outs: int
    n_nit_sot: int
    as_while: bool
    tap_array: list[list[int]]
    mit_mot_out_slices: list[list[int]]
    # Where parts of the outer inputs begin.
    n_outs: int
    n_tap_outs: int
    seqs_arg_offset: int
    shared_arg_offset: int
    nit_sot_arg_offset: int
    _hash_inner_graph: int
    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        info: dict[str, Any],
        typeConstructor: Callable[..., Type] | None = ...,
    ) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def inner_seqs(self, list_inputs: Sequence[Variable]) -> list[Variable]: ...
    def outer_seqs(self, list_inputs: Sequence[Variable]) -> list[Variable]: ...
    def inner_non_seqs(self, list_inputs: Sequence[Variable]) -> list[Variable]: ...
    def outer_non_seqs(self, list_inputs: Sequence[Variable]) -> list[Variable]: ...
    def outer_shared(self, list_inputs: Sequence[Variable]) -> list[Variable]: ...
    def inner_sitsot(self, list_inputs: Sequence[Variable]) -> list[Variable]: ...
    def inner_sitsot_outs(self, list_outputs: Sequence[Variable]) -> list[Variable]: ...
    def outer_sitsot_outs(self, list_outputs: Apply | Sequence[Variable]) -> list[Variable]: ...
    def inner_nitsot_outs(self, list_outputs: Sequence[Variable]) -> list[Variable]: ...

def __getattr__(name: str) -> Incomplete: ...
