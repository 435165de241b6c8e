"""The options of a context, which select among implementations that give the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class InstructionSet:
    """Functions in OpenCL C for asynchronous copies and tensor cores, and what kernels need to call these functions."""

    #: The functions that `optdb.codegen.gemm.tensor_cores` and other kernels for single warps call.
    warps: str
    #: The functions that `optdb.codegen.gemm.warpgroups` calls.
    warpgroups: str
    #: The type of an address in local memory, and the code that precedes a pointer to convert it to this type.
    address: str
    address_of: str
    #: The address type of a group's signals (mbarriers or their emulation), and the number of 8-byte words for one
    #: stage's signals.
    signals: str
    signal_words: int
    #: How many words of local memory the functions need for each work item, to exchange numbers between work items.
    exchanged_words: int
    #: The bodies of two macros: the head of loops over `i` that store results, and an instruction that orders or awaits
    #: the products of a warpgroup.
    stored: str
    wgmma: str


@dataclass(frozen=True)
class BatchThresholds:
    """Thresholds for turning a list of commands into a batch; see `optdb.runtime.driver_batches`."""

    #: How many times a list is enqueued command by command before the list becomes a batch.
    times: int = 4
    #: A batch releases the GIL if it has at least this number of calls.
    calls: int = 8


@dataclass(frozen=True)
class TransferSizes:
    """Sizes in bytes for copies through pinned memory; see `optdb.runtime.pinned_memory`."""

    #: The minimum size of an array that benefits from pinned memory.
    least: int = 1 << 14
    #: Arrays larger than this power of two are copied in pieces of this size, so that the driver sends one piece while
    #: the host copies another.
    piece: int = 1 << 24


@dataclass(frozen=True)
class ContextOptions:
    """Selects kernels, and how they are run; all selections give the same results.

    Tests use the options to select each implementation for small arrays.
    """

    #: The instructions for asynchronous copies and tensor cores; None selects NVIDIA's.
    instructions: InstructionSet | None = None
    #: Which aligned float32 products load four numbers at once on a GPU.
    quad_tiles: Literal["few", "all", "none"] = "few"
    #: The tile for products with `quad_tiles`, as fields of `gemm.quad_tiles.QuadTile`; None selects the fastest tile
    #: on an H200.
    quad_tile: tuple[int, ...] | None = None
    #: Which aligned float32 products copy tiles asynchronously on a GPU with tensor cores.
    copied_tiles: Literal["faster", "all"] = "faster"
    #: Which products use warpgroup instructions if the precision is not 'highest'; 'all' includes products on devices
    #: without these instructions.
    warpgroup_tiles: Literal["faster", "all"] = "faster"
    #: The tile for products with `warpgroup_tiles`, as fields of `gemm.warpgroups.WarpgroupTile`; None selects the
    #: fastest tile.
    warpgroup_tile: tuple[int, ...] | None = None
    #: Maximum number of scalar operations per element in a kernel of `codegen.loops`; compile time grows faster than
    #: the number of operations.
    loop_steps: int = 1500
    #: A kernel of `codegen.loops` loads a value that an earlier kernel also computes if the value takes at least this
    #: many scalar operations per element, where a load counts as several operations; None chooses by device.
    least_shared_steps: int | None = None
    batch_thresholds: BatchThresholds = BatchThresholds()
    transfer_sizes: TransferSizes = TransferSizes()
    #: Maximum number of scalar operations per launch, on average, in a call that runs in the calling thread
    #: (`Context.in_caller`).
    most_work_in_caller: int = 200_000
