"""The options of a context: which of several implementations with the same results it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BatchThresholds", "ContextOptions", "Instructions"]

#: The instructions in a kernel: NVIDIA's PTX, or functions in OpenCL C that compute the same on any device.
Instructions = Literal["ptx", "emulated"]


@dataclass(frozen=True)
class BatchThresholds:
    """When a list of commands becomes batches, see `optdb.runtime.driver_batches`."""

    #: How often the list is enqueued one by one before.
    times: int = 4
    #: The fewest calls of a batch: fewer take no longer from Python.
    calls: int = 8


@dataclass(frozen=True)
class ContextOptions:
    """Which kernels a context uses, where several compute the same, and when it batches commands.

    The defaults are for users: the device's profile decides which kernels there are, and estimates decide which are the
    fastest. Tests and fuzzers use other options, which reach each kernel with small arrays, on any device.
    """

    #: The instructions of kernels that copy in the background or multiply on tensor cores. A device whose profile has
    #: neither runs such a kernel only where `packed_tiles` is 'all'.
    instructions: Instructions = "ptx"
    #: Which aligned products of float32 read four numbers at once, on a GPU: those of few tiles, all, or none.
    quad_tiles: Literal["few", "all", "none"] = "few"
    #: The tile of these products, as the fields of `gemm.quad_tiles.QuadTile`; None for the fastest on an NVIDIA H200.
    quad_tile: tuple[int, ...] | None = None
    #: Which aligned products of float32 copy tiles in the background, on a GPU with tensor cores: those with large
    #: tiles, or all.
    copied_tiles: Literal["large", "all"] = "large"
    #: Which products below the highest precision pack matrices first: those that are faster by it, on a GPU with
    #: warpgroup instructions, or all, on any device.
    packed_tiles: Literal["faster", "all"] = "faster"
    #: The tile of these products, as the fields of `gemm.warpgroups.PackedBlock`; None for the fastest on an NVIDIA
    #: H100.
    packed_tile: tuple[int, ...] | None = None
    #: When a list of commands becomes batches.
    batch_thresholds: BatchThresholds = BatchThresholds()
