"""Steps of a planned function one after the other, on the same inputs, with as little Python between as can be.

The first steps are calls as any other, until there is a plan and the function finds its arrays where the plan has
them. From then on a step is the plan's commands and those that move the next values of shared arrays, both written
down once; where the driver can keep them (``optdb.runtime.command_buffers``), a step is one call of it. The last step
is again a call as any other, which leaves all as such a call does.

A plan with nodes that compute in Python at each call is run by these calls alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optdb.opencl.planning.plan import Plan
from optdb.opencl.planning.recording import Wiring
from optdb.opencl.planning.updates import in_the_way, moves
from optdb.opencl.planning.whole import begin, whole
from optdb.runtime.arrays import can_overwrite
from optdb.runtime.command_buffers import kept_by_driver
from optdb.runtime.recording import Copy, Recorder

if TYPE_CHECKING:
    from optdb.opencl.planning.vm import PlannedVM

__all__ = ["repeat"]

Bound = Callable[[], Any]

#: For fewer steps it does not pay to hand commands over to the driver.
_WORTH_KEEPING = 8


def repeat(machine: PlannedVM, times: int, between: Callable[[], Any]) -> None:
    """Compute several times from what is in the cells of the inputs.

    Parameters
    ----------
    machine : PlannedVM
        The function. The next values of its inputs are all on the device.
    times : int
        How often.
    between : callable
        Called behind each step by which arrays may move; lets the cells of inputs have their next values.
    """
    while times:
        machine()
        between()
        times -= 1
        plan = machine.ready
        step = None if plan is None or times < 2 else _step(machine.wiring, plan, times - 1)
        if step is not None:
            for _ in range(times - 1):
                step()
            times = 1


def _step(wiring: Wiring, plan: Plan, times: int) -> Bound | None:
    """Return what makes a whole step, of which so many are to come; None if Python has to look at what it does."""
    commands = None if plan.expect(times) else plan.blindly()
    moved = None if commands is None else _moves(wiring, plan)
    if moved is None:
        return None
    commands += moved
    kept = kept_by_driver(commands) if times >= _WORTH_KEEPING else None
    return kept or functools.partial(_one_by_one, commands)


def _one_by_one(commands: list[Bound]) -> None:
    with whole():
        begin()
        for command in commands:
            command()


def _moves(wiring: Wiring, plan: Plan) -> list[Bound] | None:
    """Return what moves the next values of shared arrays; None if that takes new arrays each time."""
    plan.refill()
    moving = moves(wiring)
    pairs = [(wiring.value(var), wiring.value(following)) for var, following in moving]
    if in_the_way(wiring, moving) or not all(can_overwrite(here, there) for here, there in pairs):
        return None
    memory = Recorder().memory
    return [
        plan.room.bind(
            Copy(here.queue, memory(here.base_data), here.offset, memory(there.base_data), there.offset, here.nbytes)
        )
        for here, there in pairs
    ]
