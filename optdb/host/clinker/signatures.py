"""Tells which nodes are computed by the same C code, and which C code may be kept for other processes.

Theano makes the key of a module anew for each node, from its op, the types and constants among its inputs, and the
flags. `signature` has what that key is made of, as far as it differs from node to node, without a graph and a linker
for each node.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from theano import config
from theano.configparser import get_config_hash
from theano.gof.graph import Apply, Constant, Variable

__all__ = ["flags_in_force", "keep_without_props", "signature", "stable_version"]


def stable_version(c_code_cache_version: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Mend the version of ops that have their C code in files.

    Theano takes Python's hash of that code, which is another one in each process. The version that the mended method
    returns has a hash in its place that follows from the code alone.

    Parameters
    ----------
    c_code_cache_version : callable
        ``COp.c_code_cache_version``.
    """

    @functools.wraps(c_code_cache_version)
    def mended(self: Any) -> tuple[Any, ...]:
        digest = hashlib.sha256("\0".join(self.func_codes).encode()).hexdigest()
        return (digest, *c_code_cache_version(self)[1:])

    return mended


def flags_in_force() -> Hashable:
    """Return what the C code of all nodes depends on."""
    return get_config_hash(), config.cxx, config.gcc.cxxflags, config.cmodule.remove_gxx_opt, config.cmodule.debug


def signature(node: Apply, no_recycling: Sequence[Variable]) -> Hashable | None:
    """Return what decides the C code of a node, or None where this cannot be told.

    Parameters
    ----------
    node : Apply
        Any node.
    no_recycling : sequence of Variable
        Outputs whose storage must not be used again.
    """
    first: dict[Variable, int] = {}
    inputs = []
    for index, var in enumerate(node.inputs):
        value = _value(var) if isinstance(var, Constant) else None
        inputs.append((var.type, first.setdefault(var, index), value))
    outputs = tuple((var.type, bool(no_recycling) and var in no_recycling) for var in node.outputs)
    everything = (_identity(node.op), tuple(inputs), outputs)
    try:
        hash(everything)
    except TypeError:
        return None
    return everything


def _identity(op: Any) -> Hashable:
    """Return what tells an op's C code from that of others.

    Ops that are equal have the same code, but perhaps not the same flags for the compiler: ``openmp`` is not compared
    by Theano, and of others' ops nothing is known, so that each object counts for itself.
    """
    if type(op).__module__.startswith("theano."):
        return op, getattr(op, "openmp", None), getattr(getattr(op, "scalar_op", None), "openmp", None)
    return op, id(op)


def _value(constant: Constant) -> Hashable:
    """Return what tells a constant from others, as Theano's keys do."""
    value = constant.signature()
    strong = getattr(value, "theano_hash", None)
    return value if strong is None else strong()


def keep_without_props(cmodule_key_: Callable[..., Any]) -> Callable[..., Any]:
    """Mend Theano's test of which modules may be kept.

    Theano takes an op with ``__props__ = ()`` for one without a version, because it looks for an empty tuple among the
    versions and the props alike, and compiles its module again in each process. The key that the mended method returns
    has the same parts, and lacks a version only where an op or a type says that it has none.

    Parameters
    ----------
    cmodule_key_ : callable
        ``CLinker.cmodule_key_``.
    """

    @functools.wraps(cmodule_key_)
    def mended(self: Any, fgraph: Any, *args: Any, **kwargs: Any) -> Any:
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

    return mended


def _results(op: Any, method: str, *args: Any) -> list[Any]:
    """Return what a method of an op returns, or nothing where the op lacks it."""
    return [getattr(op, method)(*args)] if hasattr(op, method) else []
