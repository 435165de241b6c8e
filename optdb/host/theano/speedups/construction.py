"""Caches for the construction of ops, nodes and types while graphs are optimized.

For each new node, Theano rereads C files, rebuilds scalar variables and recreates type objects.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import theano.scalar
from theano.gof.op import COp
from theano.scalar import basic as scalar_basic
from theano.scalar import get_scalar_type
from theano.scalar.basic import Composite, ScalarOp, autocast_int
from theano.tensor.basic import as_tensor_variable, constant
from theano.tensor.elemwise import DimShuffle, Elemwise
from theano.tensor.type import TensorType
from theano.tensor.var import TensorConstant

from optdb.host.api.config import parameter
from optdb.host.api.graph import Apply, MetaObject, Variable
from optdb.host.api.patching import Patch
from optdb.host.theano.speedups.fresh import new_node


@dataclass(frozen=True)
class _CFiles:
    """The contents of an op's C files when they were read."""

    paths: Sequence[str]
    stamps: Sequence[tuple[int, int]]
    code: list[str]
    sections: dict[str, str]


_stock_load_c_code = COp.load_c_code
_stock_make_shuffled = DimShuffle.make_node
_stock_params_type = DimShuffle.params_type
_stock_version = Elemwise.c_code_cache_version_apply
_stock_upcast = scalar_basic.upcast
_stock_type_init = TensorType.__init__
_stock_make_new_inplace = Composite.make_new_inplace

#: Maps an op's class and files to the contents of the files.
_code_of: dict[tuple[type, tuple[str, ...]], _CFiles] = {}
#: Maps a scalar op (by id, kept alive) and input dtypes to output dtypes.
_dtypes_of: dict[tuple[int, tuple[str, ...]], tuple[Any, list[str]]] = {}
#: Maps an elementwise op (by id, kept alive) and input types to the ops that pad the inputs' ranks, and to the output
#: types.
_plan_of: dict[tuple[Any, ...], tuple[Elemwise, list[DimShuffle | None] | None, list[TensorType]]] = {}
#: Maps a small integer, and the flags that determine its dtype, to its constant.
_constant_of: dict[tuple[Any, ...], TensorConstant] = {}
#: Maps an elementwise op (by id, kept alive), a flag, and the dtypes of a node to the version of the node's C code.
_version_of: dict[tuple[Any, ...], tuple[Elemwise, tuple[Any, ...]]] = {}
_types: dict[tuple[str, tuple[bool, ...]], TensorType] = {}
_params_types: list[Any] = []
#: Maps the arguments of TensorType to the attributes that its __init__ sets.
_type_state: dict[tuple[Any, ...], dict[str, Any]] = {}

_SMALL = range(-128, 128)
_cast_policy = parameter("cast_policy")
_float_dtype = parameter("floatX")


def forget() -> None:
    """Clear the caches that hold ops or depend on flags."""
    _dtypes_of.clear()
    _plan_of.clear()
    _version_of.clear()
    _types.clear()
    _type_state.clear()


def load_c_code(self: COp, func_files: list[str]) -> None:
    """Read an op's C files on the first call, and again only after the files change."""
    key = (type(self), tuple(func_files))
    known = _code_of.get(key)
    if known is not None and _stamps(known.paths) == known.stamps:
        self.func_codes, self.code_sections = list(known.code), dict(known.sections)
        return
    paths = [self.get_path(file) for file in func_files]
    stamps = _stamps(paths)
    _stock_load_c_code(self, func_files)
    _code_of[key] = _CFiles(paths, stamps, list(self.func_codes), dict(self.code_sections))


def _stamps(paths: Sequence[str]) -> list[tuple[int, int]]:
    """Return the time of the last change, and the size, of each file."""
    return [(status.st_mtime_ns, status.st_size) for status in map(os.stat, paths)]


def params_type(self: DimShuffle) -> Any:
    """Return the type of the C parameters of DimShuffles, which is created only once."""
    if not _params_types:
        _params_types.append(_stock_params_type.fget(self))
    return _params_types[0]


def init_tensor_type(
    self: TensorType, dtype: Any, broadcastable: Any, name: str | None = None, sparse_grad: bool = False
) -> None:
    """Initialize a TensorType; check each dtype and pattern only once."""
    pattern = tuple(broadcastable)
    key = (dtype, pattern, name)
    state = _type_state.get(key)
    if state is not None and not sparse_grad:
        self.__dict__.update(state)
        return
    _stock_type_init(self, dtype, pattern, name, sparse_grad)
    if not sparse_grad:
        _type_state[key] = dict(self.__dict__)


def tensor_type(dtype: str, broadcastable: tuple[bool, ...]) -> TensorType:
    """Return the shared TensorType of this dtype and pattern."""
    key = (dtype, broadcastable)
    cached = _types.get(key)
    if cached is None:
        cached = _types[key] = TensorType(dtype=dtype, broadcastable=broadcastable)
    return cached


def output_dtypes(scalar_op: Any, inputs: list[Variable]) -> list[str]:
    """Return the output dtypes of `scalar_op` for `inputs`."""
    dtypes = tuple([var.type.dtype for var in inputs])
    key = (id(scalar_op), dtypes)
    entry = _dtypes_of.get(key)
    if entry is None:
        entry = _dtypes_of[key] = (scalar_op, [type_.dtype for type_ in _output_types(scalar_op, dtypes)])
    return entry[1]


def _output_types(scalar_op: Any, dtypes: tuple[str, ...]) -> list[Any]:
    types = [get_scalar_type(dtype=dtype) for dtype in dtypes]
    if type(scalar_op).make_node is ScalarOp.make_node and scalar_op.nin in (len(types), -1):
        made = scalar_op.output_types(types)
        if len(made) == scalar_op.nout:
            return made
    return [out.type for out in scalar_op.make_node(*[type_.make_variable() for type_ in types]).outputs]


def upcast(dtype: Any, *dtypes: Any) -> str:
    """Return the result dtype of arithmetic, from a cache, because Theano adds arrays to find this dtype."""
    if not all(type(each) is str for each in (dtype, *dtypes)):
        return _stock_upcast(dtype, *dtypes)
    return _upcast(_cast_policy.val, _float_dtype.val, dtype, *dtypes)


@functools.lru_cache(maxsize=1024)
def _upcast(cast_policy: str, float_dtype: str, *dtypes: str) -> str:
    # The result depends only on these flags and the arguments.
    return _stock_upcast(*dtypes)


def get_output_info(
    self: Elemwise, dim_shuffle: Any, *inputs: Variable
) -> tuple[list[str], list[list[bool]], list[Variable]]:
    """Return the dtypes and broadcast patterns of the outputs, and the inputs padded to the same rank."""
    dtypes = output_dtypes(self.scalar_op, list(inputs))
    ndim = max(var.type.ndim for var in inputs)
    full_rank = [left_complete(var, ndim, dim_shuffle) for var in inputs]
    patterns = [var.type.broadcastable for var in full_rank]
    pattern = [all(flags) for flags in zip(*patterns, strict=True)]
    _check_inplace(self, full_rank, dtypes, pattern)
    return list(dtypes), [pattern] * len(dtypes), full_rank


def left_complete(var: Variable, ndim: int, dim_shuffle: Any) -> Variable:
    """Return `var` padded on the left to `ndim` axes; `dim_shuffle` is the class of the padding op."""
    missing = ndim - var.type.ndim
    if not missing:
        return var
    order = ["x"] * missing + list(range(var.type.ndim))
    return dim_shuffle(var.type.broadcastable, order)(var)


def _check_inplace(op: Elemwise, inputs: list[Variable], dtypes: list[str], pattern: list[bool]) -> None:
    for out, overwritten in op.inplace_pattern.items():
        flags = zip(pattern, inputs[overwritten].type.broadcastable, strict=True)
        if any(input_broadcasts and not output_broadcasts for output_broadcasts, input_broadcasts in flags):
            raise ValueError("Operation cannot be done inplace on an input with broadcasted dimensions.")
        if inputs[overwritten].type.dtype != dtypes[out]:
            raise TypeError(
                "Cannot do an inplace operation on incompatible data types.",
                ([var.type.dtype for var in inputs], dtypes, op.inplace_pattern),
            )


def make_node(self: Elemwise, *inputs: Any) -> Apply:
    """Make the node of an elementwise op; pad inputs of lower rank on the left."""
    variables = [x if isinstance(x, Variable) and type(x.type) is TensorType else _operand(x) for x in inputs]
    key = (id(self), *[(var.type.dtype, var.type.broadcastable) for var in variables])
    plan = _plan_of.get(key)
    if plan is None:
        return _make_node(self, variables, key)
    _, shuffles, types = plan
    if shuffles is not None:
        variables = [shuffle(var) if shuffle else var for var, shuffle in zip(variables, shuffles, strict=True)]
    return new_node(self, variables, [output_type() for output_type in types])


def _operand(x: Any) -> Variable:
    """Return ``as_tensor_variable(x)``; constants of small integers are cached."""
    if type(x) is not int or x not in _SMALL or constant.enable:  # if `enable` is set, Theano caches constants
        return as_tensor_variable(x)
    key = (x, _cast_policy.val, _float_dtype.val, autocast_int.dtypes)
    known = _constant_of.get(key)
    if known is None:
        known = _constant_of[key] = as_tensor_variable(x)
    return TensorConstant(known.type, known.data.copy())


def _make_node(self: Elemwise, variables: list[Variable], key: tuple[Any, ...]) -> Apply:
    """Make a node; cache its output types and padding ops if all inputs are unchanged or only padded."""
    before = variables
    dtypes, patterns, variables = self.get_output_info(DimShuffle, *variables)
    types = [tensor_type(dtype, tuple(pattern)) for dtype, pattern in zip(dtypes, patterns, strict=True)]
    pairs = list(zip(variables, before, strict=True))
    if all(var is other or _is_shuffled(var, other) for var, other in pairs):
        shuffles = [None if var is other else _shuffle_of(var) for var, other in pairs]
        _plan_of[key] = (self, shuffles if any(shuffles) else None, types)
    return new_node(self, variables, [output_type() for output_type in types])


def _shuffle_of(var: Variable) -> DimShuffle:
    assert var.owner is not None and isinstance(var.owner.op, DimShuffle)
    return var.owner.op


def _is_shuffled(var: Variable, before: Variable) -> bool:
    node = var.owner
    return node is not None and type(node.op) is DimShuffle and node.inputs[0] is before


def make_shuffled(self: DimShuffle, _input: Any) -> Apply:
    """Make the node of a DimShuffle; skip the checks if the variable has the broadcast pattern of the op's input."""
    type_ = getattr(_input, "type", None)
    if type(type_) is not TensorType or type_.broadcastable != self.input_broadcastable:
        return _stock_make_shuffled(self, _input)
    flags = type_.broadcastable
    pattern = tuple([True if isinstance(axis, str) else flags[axis] for axis in self.new_order])
    return new_node(self, [_input], [tensor_type(type_.dtype, pattern)()])


def c_code_cache_version(self: Elemwise, node: Apply) -> tuple[Any, ...]:
    """Return the version of an elementwise node's C code."""
    dtypes = tuple([var.type.dtype for var in (*node.inputs, *node.outputs)])
    key = (id(self), self.openmp, dtypes)
    entry = _version_of.get(key)
    if entry is None:
        entry = _version_of[key] = (self, _stock_version(self, node))
    return entry[1]


def make_new_inplace(self: Composite, output_types_preference: Any = None, name: str | None = None) -> Composite:
    """Return a Composite with different output types, without copying and merging its scalar graph."""
    # Leave subclasses to Theano, because they may construct their ops differently. Also leave all ops to Theano if the
    # op cache, which replaces MetaObject, shares ops.
    if type(self) is not Composite or type(Composite) is not MetaObject:
        return _stock_make_new_inplace(self, output_types_preference, name)
    out = object.__new__(Composite)
    vars(out).update(vars(self))
    out.prepare_node_called = set()
    ScalarOp.__init__(out, output_types_preference, name)
    return out


#: Patches that remain installed between sessions, since user code also creates ops when it builds a graph.
LASTING = [
    Patch(COp, "load_c_code", load_c_code, "each DimShuffle would read a C file again"),
    Patch(scalar_basic, "upcast", upcast, "the dtype of a sum is computed once"),
    Patch(theano.scalar, "upcast", upcast, "the dtype of a sum is computed once"),
]
PATCHES = [
    Patch(DimShuffle, "params_type", property(params_type), "its parameters have one type"),
    Patch(Elemwise, "get_output_info", get_output_info, "inputs of one rank need no DimShuffle"),
    Patch(TensorType, "__init__", init_tensor_type, "a type of known dtype needs no checks"),
    Patch(Elemwise, "make_node", make_node, "nodes of plain tensors are created directly"),
    Patch(DimShuffle, "make_node", make_shuffled, "the output type is created once"),
    Patch(Elemwise, "c_code_cache_version_apply", c_code_cache_version, "each Scan asks it for its inner nodes"),
    Patch(Composite, "make_new_inplace", make_new_inplace, "the scalar graph need not be copied"),
]
