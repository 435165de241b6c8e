"""Identifies nodes with the same C code, and corrects the versions in the keys of cached modules.

For each node, `signature` collects what determines the module's key, without making a graph and a linker.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from theano import config
from theano.compile.ops import FromFunctionOp
from theano.configparser import get_config_hash
from theano.gof.graph import Apply, Constant, Variable

from optdb.host.api.patching import around


@around
def stable_version(c_code_cache_version: Callable[..., tuple[Any, ...]], self: Any) -> tuple[Any, ...]:
    """Correct ``COp.c_code_cache_version``: use a digest of the C code.

    Theano uses Python's hash, which differs between processes.
    """
    digest = hashlib.sha256("\0".join(self.func_codes).encode()).hexdigest()
    return (digest, *c_code_cache_version(self)[1:])


def flags_in_force() -> Hashable:
    """Return the flags that affect all C code."""
    return get_config_hash(), config.cxx, config.gcc.cxxflags, config.cmodule.remove_gxx_opt, config.cmodule.debug


def signature(node: Apply, no_recycling: Sequence[Variable]) -> Hashable | None:
    """Return a key that determines the C code of a node; None if an op or a constant is unhashable."""
    first: dict[Variable, int] = {}
    inputs = []
    for index, var in enumerate(node.inputs):
        value = _value(var) if isinstance(var, Constant) else None
        inputs.append((var.type, first.setdefault(var, index), value))
    outputs = tuple((var.type, bool(no_recycling) and var in no_recycling) for var in node.outputs)
    try:
        key = (_identity(node.op), tuple(inputs), outputs)
        hash(key)
    except TypeError:
        return None
    return key


def _identity(op: Any) -> Hashable:
    """Return a key that identifies an op's C code and compiler flags.

    Equal ops from Theano's own modules can differ in ``openmp``. Equal ops from other modules can differ in any
    attribute. The key does not keep ops of users alive, since they may hold large data.
    """
    if type(op).__module__.startswith("theano.") and not isinstance(op, FromFunctionOp):
        return op, getattr(op, "openmp", None), getattr(getattr(op, "scalar_op", None), "openmp", None)
    hash(op)  # an op without a hash has no signature
    try:
        return _SameOp(op)
    except TypeError:  # ops with __slots__ may have no weak references
        return op, id(op)


class _SameOp:
    """A key that identifies an op object as long as the object is alive."""

    __slots__ = ("_hash", "_op")

    def __init__(self, op: Any) -> None:
        self._op = weakref.ref(op)
        self._hash = hash((type(op), id(op)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _SameOp):
            return NotImplemented
        op = self._op()
        return op is not None and op is other._op()


def _value(constant: Constant) -> Hashable:
    value = constant.signature()
    strong = getattr(value, "theano_hash", None)
    return value if strong is None else strong()


@around
def keep_without_props(cmodule_key_: Callable[..., Any], self: Any, fgraph: Any, *args: Any, **kwargs: Any) -> Any:
    """Correct ``CLinker.cmodule_key_``: an op with ``__props__ = ()`` is versioned.

    If an op's versions or props include an empty tuple, Theano considers it unversioned, and compiles its module in
    each process.
    """
    key = cmodule_key_(self, fgraph, *args, **kwargs)
    if key is None or key[0]:
        return key
    version = []
    for node in self.schedule(fgraph):
        of_op = _results(node.op, "c_code_cache_version_apply", node)
        of_types = [var.type.c_code_cache_version() for var in (*node.inputs, *node.outputs)]
        if not all([*of_op, *of_types]):
            return key
        props = [node.op.__props__] if hasattr(node.op, "__props__") else []
        version += [*of_op, *props, *of_types]  # in Theano's order
    return (tuple(version), key[1]) if version else key


def _results(op: Any, method: str, *args: Any) -> list[Any]:
    return [getattr(op, method)(*args)] if hasattr(op, method) else []
