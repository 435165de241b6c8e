"""Digests that identify graphs; they are the same in each process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable

__all__ = ["graph_digest"]

#: Only dtype and shape of larger constants enter a digest.
_MAX_CONSTANT_ELEMENTS = 1000


def graph_digest(fgraph: Any) -> str:
    """Return a digest of a graph's ops, types and small constants; variables' names are not included."""
    return hashlib.sha256("\n".join(_lines(fgraph)).encode()).hexdigest()[:32]


def _lines(fgraph: Any) -> Iterator[str]:
    names: dict[Variable, str] = {}
    for number, var in enumerate(fgraph.inputs):
        names[var] = f"input {number}"
        yield f"{names[var]}: {var.type}"
    for number, node in enumerate(fgraph.toposort()):
        names.update((var, f"node {number} output {output}") for output, var in enumerate(node.outputs))
        inputs = ", ".join(names.get(var) or _constant(var) for var in node.inputs)
        types = ", ".join(str(var.type) for var in node.outputs)
        yield f"node {number}: {_op(node.op)}({inputs}) -> {types}"
    yield f"outputs: {', '.join(names.get(var) or _constant(var) for var in fgraph.outputs)}"


def _op(op: Any) -> str:
    # Some ops' names contain the addresses of functions, which differ between processes.
    name = re.sub(r"0x[0-9a-fA-F]+", "", f"{type(op).__module__}.{type(op).__qualname__} {op}")
    inner = getattr(op, "fgraph", None)
    return name if inner is None else f"{name} {graph_digest(inner)}"


def _constant(var: Variable) -> str:
    if not isinstance(var, Constant):
        return f"{var.type}"
    if not isinstance(var.data, np.ndarray):
        return re.sub(r"0x[0-9a-fA-F]+", "", repr(var.data))
    data = np.ascontiguousarray(var.data)
    content = hashlib.sha256(data.tobytes()).hexdigest() if data.size <= _MAX_CONSTANT_ELEMENTS else ""
    return f"{data.dtype}{data.shape} {content}"
