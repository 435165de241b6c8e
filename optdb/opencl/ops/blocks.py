"""Theano's products with blocks of a matrix on the device; the indices of the blocks are on the host."""

from __future__ import annotations

from optdb.codegen.named_blocks import AddBlockProducts, AddOuterProducts
from optdb.codegen.operation import Operation
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.lifting import floats_only, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLSparseBlockGemv(Counterpart, Shell, host.SparseBlockGemv):
    """Products of vectors with blocks of a matrix, added to vectors."""

    device_inputs = slice(0, 3)
    common_dtype = 0

    def operation(self, node: Apply) -> Operation:
        return AddBlockProducts(self.get_context(node), spec_of(node.inputs[0]), self.inplace)


class OpenCLSparseBlockOuter(Counterpart, Shell, host.SparseBlockOuter):
    """Outer products of vectors, added to blocks of a matrix. Like the host op, it ignores the factor."""

    device_inputs = slice(0, 3)
    common_dtype = 0

    def operation(self, node: Apply) -> Operation:
        return AddOuterProducts(self.get_context(node), spec_of(node.inputs[0]), self.inplace)


register_counterparts("lift_product_of_blocks", 57, [host.SparseBlockGemv], floats_only)
register_counterparts("lift_outer_products_of_blocks", 58, [host.SparseBlockOuter], floats_only)
