"""Op shells: graph ops that a device computes with an operation from ``optdb.codegen``.

A shell selects the operation and maps the node's inputs to it; the host op's class provides type inference and
gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.kernel_ops.base import OpenCLKernelBase
from optdb.runtime.context import Context


def once_per_node(method: Callable[[Any, Apply], Any]) -> Callable[[Any, Apply], Any]:
    """Cache the result of an op's method for each node as long as the node exists."""
    cache: WeakKeyDictionary[Apply, Any] = WeakKeyDictionary()

    @functools.wraps(method)
    def remembering(op: Any, node: Apply) -> Any:
        result = cache.get(node)
        if result is None:
            result = cache[node] = method(op, node)
        return result

    return remembering


class Shell(OpenCLKernelBase):
    """An op computed by an operation from ``optdb.codegen``; subclasses define `computed_by` or `operation`."""

    #: A function that returns the operation, given a context, the first input's spec, and the values of the attributes
    #: in `settings`.
    computed_by: ClassVar[Callable[..., Operation]]
    settings: ClassVar[Sequence[str]] = ()
    #: Operations use the arrays' actual lengths, and reject lengths that do not match.
    checks_lengths = True

    def operation(self, node: Apply) -> Operation:
        """Return the operation that computes a node; this is called once for each node."""
        values = [getattr(self, name) for name in self.settings]
        return type(self).computed_by(self.get_context(node), spec_of(node.inputs[0]), *values)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._operation_of(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        self._operation_of(node).run(inputs, outputs, kernels)

    def reads_tables_alone(self, node: Apply) -> bool:
        return self._operation_of(node).reads_tables_alone

    @once_per_node
    def _operation_of(self, node: Apply) -> Operation:
        return self.operation(node)


def spec_of(variable: Variable) -> ArraySpec:
    """Return the array spec of a variable's type."""
    return ArraySpec(variable.type.dtype, tuple(variable.type.broadcastable))
