from collections.abc import Sequence
from typing import ClassVar

from _typeshed import Incomplete
from theano.gof.graph import Variable
from theano.gof.op import COp, Op, OpenMPOp
from theano.gof.type import _Axis
from theano.scalar.basic import BinaryScalarOp, ScalarOp

class CAReduce(Op):
    scalar_op: ScalarOp
    axis: list[int] | tuple[int, ...] | None
    ufunc: Incomplete
    def __init__(self, scalar_op: ScalarOp, axis: _Axis = ...) -> None: ...

class All(CAReduce):
    def __init__(self, axis: _Axis = ...) -> None: ...

class Any(CAReduce):
    def __init__(self, axis: _Axis = ...) -> None: ...

class CAReduceDtype(CAReduce):
    # Both may be None until the op is applied.
    dtype: str
    acc_dtype: str
    def __init__(
        self, scalar_op: ScalarOp, axis: _Axis = ..., dtype: str | None = ..., acc_dtype: str | None = ...
    ) -> None: ...
    def _acc_dtype(self, idtype: str) -> str: ...

class DimShuffle(COp):
    c_func_file: ClassVar[str]
    input_broadcastable: tuple[bool, ...]
    new_order: tuple[int | str, ...]
    inplace: bool
    drop: list[int]
    shuffle: list[int]
    augment: list[int]
    # A property.
    params_type: Incomplete
    def __init__(
        self, input_broadcastable: Sequence[bool], new_order: Sequence[int | str], inplace: bool = ...
    ) -> None: ...

class Elemwise(OpenMPOp):
    scalar_op: ScalarOp
    inplace_pattern: dict[int, int]
    name: str | None
    nfunc_spec: tuple[str, int, int] | None
    ufunc: Incomplete
    nfunc: Incomplete
    def __init__(
        self,
        scalar_op: ScalarOp,
        inplace_pattern: dict[int, int] | None = ...,
        name: str | None = ...,
        nfunc_spec: tuple[str, int, int] | None = ...,
        openmp: bool | None = ...,
    ) -> None: ...
    def get_output_info(
        self, dim_shuffle: type[DimShuffle], *inputs: Variable
    ) -> tuple[list[str], list[Sequence[bool]], list[Variable]]: ...

class MulWithoutZeros(BinaryScalarOp): ...

class Prod(CAReduceDtype):
    no_zeros_in_input: bool
    def __init__(
        self, axis: _Axis = ..., dtype: str | None = ..., acc_dtype: str | None = ..., no_zeros_in_input: bool = ...
    ) -> None: ...

class ProdWithoutZeros(CAReduceDtype):
    def __init__(self, axis: _Axis = ..., dtype: str | None = ..., acc_dtype: str | None = ...) -> None: ...

class Sum(CAReduceDtype):
    def __init__(self, axis: _Axis = ..., dtype: str | None = ..., acc_dtype: str | None = ...) -> None: ...

mul_without_zeros: MulWithoutZeros

def __getattr__(name: str) -> Incomplete: ...
