"""The tiles by which warpgroups multiply, how fast they are, and whether a device multiplies by warpgroups at all.

OpenCL C's compiler does not know the instruction (`optdb.runtime.marked_ptx`), and another driver may refuse it. So a
device computes a small product first, and `usable` tells whether that was right.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import warpgroup_kernels
from optdb.codegen.gemm.launches import by_tiles, run, wide_total_kernel
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.gemm.warpgroup_kernels import WarpgroupBlock, warpgroup_kernel
from optdb.codegen.kernels import compile_kernels
from optdb.runtime import tuning
from optdb.runtime.arrays import empty, from_host, to_host
from optdb.runtime.build import BuildError
from optdb.runtime.commands import listened
from optdb.runtime.library import cl

if TYPE_CHECKING:
    from optdb.runtime.context import Context

__all__ = ["RATES", "usable"]

_logger = logging.getLogger(__name__)

#: How much a unit of an NVIDIA H200 computes of tiles of each shape, in 1e12 operations a second, with one group on it,
#: with two, and so on. A unit holds no more of them than are listed.
RATES: Mapping[WarpgroupBlock, tuple[float, ...]] = {WarpgroupBlock(128, 256): (1.7,)}

#: Changed when the trial or the kernels are.
_VERSION = "1"
_TRIAL = WarpgroupBlock(128, 256)
#: Rows, columns and terms of the trial: of a whole tile and of cut ones, with stages beyond those in registers.
_LENGTHS = 136, 264, 200


def usable(context: Context) -> bool:
    """Tell whether a device multiplies by warpgroups; the first call in a process, and on a machine, tries."""
    if not context.profile.has_warpgroups:
        return False
    if __name__ not in context.kept:
        context.kept[__name__] = _kept_finding(context)
    return context.kept[__name__]


def _kept_finding(context: Context) -> bool:
    """Return what the trial found, from disk if the device has been tried."""
    key = tuning.key_of(context.device, "warpgroups", "float32", _VERSION)
    found = tuning.load(key)
    if found is not None:
        return found.get("right") is True
    try:
        is_right = _is_right(context)
    except BuildError as error:
        _logger.info("warpgroups do not multiply on %s: %s", context.profile.name, error.log)
        is_right = False
    except cl.Error as error:
        # Another process has the device's memory, maybe: the next one tries again.
        _logger.warning("warpgroups could not be tried on %s: %s", context.profile.name, error)
        return False
    with contextlib.suppress(OSError):
        tuning.save(key, {"right": is_right})
    return is_right


def _is_right(context: Context) -> bool:
    """Compute a product of whole numbers by warpgroups; tell whether it is right."""
    m, n, k = _LENGTHS
    a, b = (np.arange(rows * cols, dtype="float32").reshape(rows, cols) % 13 - 6 for rows, cols in ((m, k), (k, n)))
    problem = Problem(1, m, n, k, (0, k, 1), (0, n, 1), (0, n, 1), (0, n, 1), False)
    name = warpgroup_kernels.kernel_name(_TRIAL)
    plan = by_tiles(problem, name, problem.tiles(_TRIAL.rows, _TRIAL.cols), _TRIAL.items, 1, _TRIAL.depth)
    # Those of a product, which then finds them built.
    needed = [warpgroup_kernel(_TRIAL), wide_total_kernel("float32")]
    kernels = compile_kernels(needed, context, "a trial of warpgroups")
    # A plan that is being recorded does not repeat the trial.
    with listened(None):
        x, v, z = from_host(context, a), from_host(context, b), empty(context, (m, n), "float32")
        run(plan, kernels, context, {"a": x, "b": v, "y": z, "z": z}, 1.0, 0.0, "float32")
        product = to_host(z)
    if not np.array_equal(product, a @ b):
        _logger.warning("warpgroups of %s multiply wrongly", context.profile.name)
        return False
    return True
