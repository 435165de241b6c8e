"""The options of a context: the choice among implementations with the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BatchThresholds", "ContextOptions", "Instructions"]

#: The instructions in a kernel: NVIDIA's PTX, or equivalent OpenCL C functions for any device.
Instructions = Literal["ptx", "emulated"]


@dataclass(frozen=True)
class BatchThresholds:
    """The thresholds at which a list of commands becomes a batch; see `optdb.runtime.driver_batches`."""

    #: How often the list is first enqueued command by command.
    times: int = 4
    #: The minimum number of calls in a batch: fewer calls are as fast from Python.
    calls: int = 8


@dataclass(frozen=True)
class ContextOptions:
    """The choice among kernels that compute the same, and the thresholds for batches of commands.

    The defaults are for users: the device's profile determines the available kernels, and estimates determine the
    fastest. Tests and fuzzers use other options, which exercise each kernel with small arrays on any device.
    """

    #: The instructions of kernels that use asynchronous copies or tensor cores. A device whose profile has neither runs
    #: such a kernel only if `packed_tiles` is 'all'.
    instructions: Instructions = "ptx"
    #: The aligned float32 products that load four numbers at once, on a GPU: those with few tiles, all, or none.
    quad_tiles: Literal["few", "all", "none"] = "few"
    #: The tile of these products, as the fields of `gemm.quad_tiles.QuadTile`; None for the fastest on an NVIDIA H200.
    quad_tile: tuple[int, ...] | None = None
    #: The aligned float32 products that copy tiles asynchronously, on a GPU with tensor cores: those that are faster
    #: with them, or all.
    copied_tiles: Literal["faster", "all"] = "faster"
    #: The products below the highest precision that pack matrices first: those that are faster with packing, on a GPU
    #: with warpgroup instructions, or all, on any device.
    packed_tiles: Literal["faster", "all"] = "faster"
    #: The tile of these products, as the fields of `gemm.warpgroups.PackedBlock`; None for the fastest on an NVIDIA
    #: H100.
    packed_tile: tuple[int, ...] | None = None
    #: The thresholds at which a list of commands becomes a batch.
    batch_thresholds: BatchThresholds = BatchThresholds()
