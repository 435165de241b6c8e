"""Lookup tables of a plan: device arrays that kernels read instead of host values, such as a batch's class labels.

A call writes new tables to the memory that the kernels read, without running the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.linked import LinkedFunction
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.commands import EnqueueUpload
from optdb.runtime.dispatch import enqueue, keep_event
from optdb.runtime.recording import Segment
from optdb.runtime.tables import TableSource


@dataclass(frozen=True, eq=False)
class NodeTable:
    """A table that a node's kernels read."""

    #: The host variable, with the shape and dtype of its recorded value.
    var: ValueId
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    #: Computes the table from a value with the recorded shape and dtype.
    source: TableSource
    #: The table on the device; only the plan writes it.
    array: Array

    def of(self, value: Any) -> HostArray | None:
        """Return the table for another value; None if it cannot have the recorded shape and dtype."""
        if not isinstance(value, np.ndarray) or value.shape != self.shape or value.dtype != self.dtype:
            return None
        try:
            return np.ascontiguousarray(self.source.of(value))
        except (IndexError, TypeError, ValueError):
            return None  # the node raises its own error

    def write(self, table: HostArray) -> None:
        """Upload a table for the kernels that are enqueued next; the caller must not modify it afterwards."""
        if not table.size:
            return
        array = self.array
        command = EnqueueUpload(array.queue, array.base_data, array.offset, table, is_blocking=False)
        enqueue(command)
        keep_event(command)


def tables_of(linked: LinkedFunction, node: Node, segment: Segment) -> list[NodeTable]:
    """Return the tables of a node that has just run; an empty list unless it reads host values only through tables."""
    if not node.reads_tables_alone or segment.unsupported_reason is not None:
        return []
    value = linked.value
    seen = [var for var in node.inputs if not (linked.on_device(var) or var in linked.constants)]
    found = [
        NodeTable(var, value(var).shape, value(var).dtype, source.without_root(), array)
        for source, array in segment.tables
        for var in seen
        if value(var) is source.root
    ]
    return found if {table.var for table in found} == set(seen) else []
