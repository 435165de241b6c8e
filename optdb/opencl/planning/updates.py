"""Shared arrays stay where they are: their next values are written over the present ones.

Otherwise each call would find them in another place, and no plan would be of use twice. :func:`advance` does it; an
:class:`Advance` writes down what that has put into the queue, and repeats it for as long as all arrays are where they
were.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from optdb.host.graph import Variable
from optdb.opencl.planning.recording import Wiring
from optdb.opencl.planning.roles import on_device
from optdb.runtime.arrays import Array, copy, overwrite
from optdb.runtime.bound import Room
from optdb.runtime.recording import Recorder

#: So often it is written down what advances: where arrays are elsewhere at each call, that is of no use.
TRIES = 3


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


class Advance:
    """`advance` for one plan of a function, whose arrays are mostly the same ones at each call.

    Parameters
    ----------
    wiring : Wiring
        The function.
    tries : int
        How often it may be written down what advances.
    """

    def __init__(self, wiring: Wiring, tries: int = TRIES) -> None:
        self._wiring = wiring
        concerned = [var for pair in wiring.advancing for var in pair] + [
            var for var in wiring.outputs if on_device(var)
        ]
        self._cells = [wiring.cells[var] for var in dict.fromkeys(concerned)]
        self._before: list[Any] | None = None
        self._after: list[Any] = []
        self._commands: list[Callable[[], Any]] = []
        self._tries = tries

    def run(self) -> None:
        """Write the next values over the present ones."""
        before = [cell[0] for cell in self._cells]
        if self._before is not None and all(map(operator.is_, before, self._before)):
            for command in self._commands:
                command()
            for cell, value in zip(self._cells, self._after):
                cell[0] = value
        elif self._tries:
            self._tries -= 1
            self._record(before)
        else:
            advance(self._wiring)

    def _record(self, before: list[Any]) -> None:
        recorder = Recorder()
        with recorder.part() as part:
            advance(self._wiring)
        self._after = [cell[0] for cell in self._cells]
        made = set(part.made)
        # What has been copied for the caller must be new each time.
        is_new = any(isinstance(array, Array) and recorder.layout(array).memory in made for array in self._after)
        if part.trouble is not None or is_new:
            self._before = None
            return
        room = Room(dict.fromkeys(part.made, (0, 0)))
        self._before, self._commands = before, [room.bind(command) for command in part.commands]
