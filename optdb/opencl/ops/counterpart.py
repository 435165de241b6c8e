"""The base class of device ops that compute the same as a host op; it can cast their inputs.

A counterpart derives from :class:`Counterpart`, which moves the arrays to the device. Its last base is the host's
class, which provides the parameters, shapes and gradients. The host's op determines the types of the outputs, so its
checks apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.host.api.graph import Variable
from optdb.host.api.scalars import upcast
from optdb.opencl.ops.counterpart_base import CounterpartBase, on_one_device
from optdb.opencl.ops.elemwise import cast


class Counterpart(CounterpartBase):
    """The base of counterparts that compute. List it before the host's class."""

    #: The dtype that arrays are cast to: an index into `device_inputs` for that array's dtype, or 'upcast' for the
    #: dtype that all upcast to. With None, each keeps its own.
    common_dtype: ClassVar[int | str | None] = None

    def move_arrays(self, arrays: Sequence[Any]) -> list[Variable]:
        moved = on_one_device(arrays)
        return moved if self.common_dtype is None else cast_to_common(moved, self.common_dtype)


def cast_to_common(arrays: Sequence[Variable], common_dtype: int | str) -> list[Variable]:
    """Return arrays of a device, cast to one dtype.

    Parameters
    ----------
    arrays : sequence of Variable
        Arrays on one device.
    common_dtype : int or 'upcast'
        The index of the array with the common dtype; with 'upcast', it is the dtype that all upcast to.
    """
    dtypes = [x.type.dtype for x in arrays]
    dtype = dtypes[common_dtype] if isinstance(common_dtype, int) else upcast(*dtypes)
    return [cast(x, dtype) for x in arrays]
