"""The modes 'OPENCL' and 'OPENCL_AUTO', and the linkers of these names in lower case."""

from __future__ import annotations

from pytensor.compile.mode import Mode, register_linker, register_mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from optdb.pytensor.choosing import ChoosingLinker
from optdb.pytensor.linker import OpenCLLinker

__all__ = ["OPENCL", "opencl_mode"]


def opencl_mode(device: str | None = None, auto: bool = False) -> Mode:
    """Return a mode whose functions run on a device.

    Parameters
    ----------
    device : str, optional
        Which device, as `python -m optdb devices` lists them; the likely fastest one by default.
    auto : bool
        Whether functions run by PyTensor's default linker where that is faster, as in mode 'OPENCL_AUTO'.
    """
    linker = (ChoosingLinker if auto else OpenCLLinker)(device=device)
    excluded = list(OpenCLLinker.incompatible_rewrites)
    return Mode(linker, RewriteDatabaseQuery(include=["fast_run"], exclude=excluded))


#: The mode of the default device.
OPENCL = opencl_mode()
register_linker("opencl", OpenCLLinker())
register_mode("OPENCL", OPENCL)
register_linker("opencl_auto", ChoosingLinker())
register_mode("OPENCL_AUTO", opencl_mode(auto=True))
