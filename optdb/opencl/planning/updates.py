"""Shared arrays stay where they are: their next values are written over the present ones.

Otherwise each call would find them in another place, and no plan would be of use twice.
"""

from __future__ import annotations

from typing import Any

from optdb.host.graph import Variable
from optdb.opencl.planning.recording import Wiring
from optdb.runtime.arrays import Array, copy, overwrite


def advance(wiring: Wiring) -> None:
    """Write the next values of shared arrays over the present ones, behind a call.

    What else the call has computed there, in place of the present values, is copied elsewhere first.
    """
    moving = moves(wiring)
    for cell in in_the_way(wiring, moving):
        cell[0] = copy(cell[0])
    for var, following in moving:
        here = wiring.value(var)
        if overwrite(here, wiring.value(following)):
            wiring.cells[following][0] = here


def moves(wiring: Wiring) -> list[tuple[Variable, Variable]]:
    """Return the inputs whose next values lie elsewhere, each with its next value."""
    return [(var, following) for var, following in wiring.advancing if _moves(wiring, var, following)]


def in_the_way(wiring: Wiring, moving: list[tuple[Variable, Variable]]) -> list[list[Any]]:
    """Return the cells of what else lies where next values are to go."""
    if not moving:
        return []
    owner = {wiring.value(var).base_data.int_ptr: following for var, following in moving}
    found = []
    for var in dict.fromkeys([*wiring.outputs, *wiring.updates.values()]):
        cell = wiring.cells[var]
        if isinstance(cell[0], Array) and cell[0].size and owner.get(cell[0].base_data.int_ptr, var) is not var:
            found.append(cell)
    return found


def _moves(wiring: Wiring, var: Variable, following: Variable) -> bool:
    """Tell whether the next value lies elsewhere, in another buffer."""
    here, there = wiring.value(var), wiring.value(following)
    if here.base_data is there.base_data:
        return False
    return bool(here.size and there.size) and here.base_data.int_ptr != there.base_data.int_ptr
