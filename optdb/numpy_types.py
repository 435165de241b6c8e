"""Type hints for NumPy: an array and a dtype of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: An array in the host's memory, of any dtype and any number of dimensions.
HostArray: TypeAlias = "npt.NDArray[Any]"
#: A dtype of any kind.
AnyDtype: TypeAlias = "np.dtype[Any]"
