"""The options of a context, which select among implementations with the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BatchThresholds", "ContextOptions", "Instructions"]

#: The instructions in a kernel: NVIDIA's PTX, or equivalent OpenCL C functions for any device.
Instructions = Literal["ptx", "emulated"]


@dataclass(frozen=True)
class BatchThresholds:
    """The thresholds at which a list of commands becomes a batch; see `optdb.runtime.driver_batches`."""

    #: How often a list is enqueued command by command before it becomes a batch.
    times: int = 4
    #: The minimum number of calls in a batch: Python makes fewer calls just as fast.
    calls: int = 8


@dataclass(frozen=True)
class ContextOptions:
    """Selects among kernels with the same results, and sets the thresholds for batches of commands.

    The defaults are for users: the device's profile determines the available kernels, and estimates select the fastest
    of them. Tests and fuzzers use other options, which exercise each kernel with small arrays on any device.
    """

    #: The instructions in kernels that use asynchronous copies or tensor cores. A device whose profile has neither runs
    #: such a kernel only if `packed_tiles` is 'all'.
    instructions: Instructions = "ptx"
    #: Selects the aligned float32 products that load four numbers at once on a GPU: products with few tiles, all
    #: products, or none.
    quad_tiles: Literal["few", "all", "none"] = "few"
    #: The tile for products that load four numbers at once, given as the fields of `gemm.quad_tiles.QuadTile`; None
    #: selects the fastest on an NVIDIA H200.
    quad_tile: tuple[int, ...] | None = None
    #: Selects the aligned float32 products that copy tiles asynchronously on a GPU with tensor cores: either the
    #: products that run faster this way, or all of them.
    copied_tiles: Literal["faster", "all"] = "faster"
    #: Selects the products below the highest precision that pack their matrices first: either the products that run
    #: faster this way on a GPU with warpgroup instructions, or all products on any device.
    packed_tiles: Literal["faster", "all"] = "faster"
    #: The tile for packed products, given as the fields of `gemm.warpgroups.PackedBlock`; None selects the fastest on
    #: an NVIDIA H100.
    packed_tile: tuple[int, ...] | None = None
    #: The thresholds at which a list of commands becomes a batch.
    batch_thresholds: BatchThresholds = BatchThresholds()
