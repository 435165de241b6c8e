"""Theano's linker classes and helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from theano.compile.function_module import infer_reuse_pattern
from theano.compile.ops import DeepCopyOp, ViewOp, deep_copy_op
from theano.gof import vm
from theano.gof.fg import FunctionGraph
from theano.gof.link import Linker, LocalLinker, raise_with_op
from theano.gof.vm import VM, VM_Linker

HAS_C_LOOP = hasattr(vm, "CVM")


def has_default_schedule(linker: LocalLinker) -> bool:
    """Return whether a linker runs nodes in Theano's default order instead of the user's order."""
    return getattr(linker.schedule, "__func__", None) is Linker.schedule


def graph_of(linker: Linker) -> FunctionGraph:
    """Return the graph that a linker has accepted."""
    assert linker.fgraph is not None, linker
    return linker.fgraph


def as_thunk(
    compute: Callable[[], None], inputs: Sequence[list[Any]], outputs: Sequence[list[Any]], **attributes: Any
) -> Callable[[], None]:
    """Return `compute` with the attributes that virtual machines read from a thunk."""
    vars(compute).update(inputs=inputs, outputs=outputs, lazy=False, **attributes)
    return compute
