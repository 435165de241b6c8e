"""Kernels that process the rows of matrices: a work item, or a team of items, processes a row.

On a CPU, an item processes whole rows. On other devices, a team of items within a work group shares a row, so that
neighbouring items read neighbouring elements.
"""

from __future__ import annotations

import re
from typing import Any

from optdb.codegen.kernels import CompiledKernel
from optdb.codegen.layout import launch_striding
from optdb.codegen.source import filled, functions
from optdb.runtime.context import Context

#: Maximum work-group size; a power of two.
GROUP = 256
#: Loads in flight for each item: single elements, or vectors of four neighbours. On an NVIDIA H100, cross entropies
#: of 3,200 rows of 10,000 numbers take 117 us with four vectors, and 137 us with two.
_UNROLLED, _FOURS = 4, 4
#: The fewest elements for each item of a team, if the row is long enough.
_EACH = 4

_SERIAL, _TEAMS = functions("cross_entropy.cl"), functions("row_teams.cl")
_TEAM = """const uint team = (uint)items, lane = (uint)LID_0 % team, begin = (uint)LID_0 - lane;
    const ga_size i = GID_0 * (LDIM_0 / team) + LID_0 / team;"""
_FOLD = re.compile(r"FOLD\((.*)\)$", re.MULTILINE)
_FOLDED = r"""for (uint half_of = team / 2; half_of > 0; half_of /= 2) {
        local_barrier();
        if (lane < half_of) {
            const W u = shared[LID_0], v = shared[LID_0 + half_of];
            shared[LID_0] = \1;
        }
    }
    local_barrier();"""


def row_kernel(name: str, context: Context) -> str:
    """Return the code of a row kernel for the context's device, from cross_entropy.cl or row_teams.cl."""
    if context.profile.runs_items_serially:
        return _SERIAL[name]
    return filled(_FOLD.sub(_FOLDED, _TEAMS[name]), TEAM=_TEAM, GROUP=GROUP, UNROLLED=_UNROLLED, FOURS=_FOURS)


def launch_rows(kernel: CompiledKernel, context: Context, rows: int, columns: int, *args: Any) -> None:
    """Launch a kernel of `row_kernel` for nonempty rows; it takes the numbers of rows and columns, and `args`."""
    if context.profile.runs_items_serially:
        launch_striding(kernel, context, rows, columns, *args)
        return
    group = min(GROUP, 1 << (context.profile.max_local_size.bit_length() - 1))
    team = 1
    while team < group and team * _EACH < columns:
        team *= 2
    groups = -(-rows // (group // team))
    kernel.call(groups * group, group, rows, columns, team, *args)
