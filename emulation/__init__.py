"""Functions in OpenCL C that compute what NVIDIA's instructions compute, on any device.

Tests, fuzzers and the memory checker use these functions to run the kernels for tensor cores and asynchronous copies
without an NVIDIA GPU. The functions check the order of copies and reads: data arrives as late as on a GPU.
"""

from __future__ import annotations

from pathlib import Path

from optdb.runtime.context_options import InstructionSet

__all__ = ["EMULATED"]

_HERE = Path(__file__).parent
_WARPS = (_HERE / "warps.cl").read_text(encoding="utf-8")
_PRODUCTS = (_HERE / "products.cl").read_text(encoding="utf-8")

#: Items exchange numbers through local memory. PoCL takes long to compile unrolled loops with barriers, which the
#: exchanges contain, so loops that store results are not unrolled.
EMULATED = InstructionSet(
    warps=_PRODUCTS + _WARPS,
    warpgroups=_PRODUCTS + (_HERE / "warpgroups.cl").read_text(encoding="utf-8"),
    address="__local uint *",
    address_of="",
    signals="__local ulong *",
    signal_words=9,
    exchanged_words=6,
    stored="for (int i = begin; i < end; i += step)",
    wgmma="",
)
