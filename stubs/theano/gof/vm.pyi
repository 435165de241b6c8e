from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from _typeshed import Incomplete
from theano.gof.graph import Apply, Variable
from theano.gof.link import LocalLinker

class VM:
    nodes: Sequence[Apply]
    thunks: Sequence[Any]
    pre_call_clear: list[list[Any]]
    call_counts: list[int]
    call_times: list[float]
    time_thunks: bool
    need_update_inputs: bool
    storage_map: dict[Variable, list[Any]]
    compute_map: dict[Variable, list[bool]]
    allow_gc: bool
    # An attribute of Theano's machine in C.
    position_of_error: int
    # Set by optdb where functions wait for their C code.
    turn: Callable[[], AbstractContextManager[object]]
    def __init__(self, nodes: Sequence[Apply], thunks: Sequence[Any], pre_call_clear: list[list[Any]]) -> None: ...
    # Machines take different arguments.
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def clear_storage(self) -> None: ...
    def update_profile(self, profile: Any) -> None: ...

class Loop(VM):
    post_thunk_clear: Any

class LoopGC(VM): ...
class Stack(VM): ...

class VM_Linker(LocalLinker):
    use_cloop: bool
    callback: Callable[..., Any] | None
    callback_input: Callable[..., Any] | None
    lazy: bool | None
    c_thunks: bool
    allow_partial_eval: bool | None
    no_recycling: Sequence[Variable]
    updated_vars: dict[Variable, Variable]
    def __init__(
        self,
        allow_gc: bool | None = ...,
        use_cloop: bool = ...,
        callback: Callable[..., Any] | None = ...,
        callback_input: Callable[..., Any] | None = ...,
        lazy: bool | None = ...,
        schedule: Callable[..., Any] | None = ...,
        c_thunks: bool | None = ...,
        allow_partial_eval: bool | None = ...,
    ) -> None: ...
    def make_vm(self, *args: Any, **kwargs: Any) -> Any: ...
    def compute_gc_dependencies(self, variables: Any) -> dict[Any, Any]: ...

def __getattr__(name: str) -> Incomplete: ...
