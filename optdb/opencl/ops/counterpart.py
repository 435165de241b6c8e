"""The base class of ops that compute, on a device, what an op of the host computes; it can cast their inputs.

A counterpart derives from :class:`Counterpart`, which puts the arrays on the device, and at last from the host's class,
which gives it the parameters, the shapes and the gradients. The outputs have the types that the host's op gives, so its
checks apply too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.host.api.graph import Variable
from optdb.host.api.scalars import upcast
from optdb.opencl.ops.counterpart_base import CounterpartBase, on_one_device
from optdb.opencl.ops.elemwise import cast


class Counterpart(CounterpartBase):
    """The base of counterparts that compute. It comes before the host's class among the bases."""

    #: The dtype that the arrays get: that of one of them, counted among `device_inputs`, or 'upcast', that which all
    #: upcast to. With None, each keeps its own.
    common_dtype: ClassVar[int | str | None] = None

    def move_arrays(self, arrays: Sequence[Any]) -> list[Variable]:
        moved = on_one_device(arrays)
        return moved if self.common_dtype is None else cast_to_common(moved, self.common_dtype)


def cast_to_common(arrays: Sequence[Variable], common_dtype: int | str) -> list[Variable]:
    """Return arrays of a device, cast to one dtype.

    Parameters
    ----------
    arrays : sequence of Variable
        On one device.
    common_dtype : int or 'upcast'
        The index of the array whose dtype all get; with 'upcast', they get the dtype that all upcast to.
    """
    dtypes = [x.type.dtype for x in arrays]
    dtype = dtypes[common_dtype] if isinstance(common_dtype, int) else upcast(*dtypes)
    return [cast(x, dtype) for x in arrays]
