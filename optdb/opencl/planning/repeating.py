"""Steps of a planned function one after the other, on the same inputs, with as little Python between as can be.

The first steps are calls as any other, until there is a plan and the function finds its arrays where the plan has
them. From then on a step is the plan's commands and those that commit the updates. Where the driver can keep them
(``optdb.runtime.command_buffers``), a step is one call of it. The last step is again a call as any other, which leaves
all as such a call does.

A plan with nodes that compute in Python in each call is run by these calls alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optdb.opencl.planning.sigint import commit_point, defer_sigint
from optdb.runtime.command_buffers import kept_by_driver
from optdb.runtime.commands import CommandList

if TYPE_CHECKING:
    from optdb.opencl.planning.vm import PlannedVM

__all__ = ["repeat"]

#: For fewer steps it does not pay to hand commands over to the driver.
_MIN_STEPS_FOR_DRIVER = 8


def repeat(machine: PlannedVM, times: int) -> None:
    """Compute several times from what is in the cells of the inputs.

    Parameters
    ----------
    machine : PlannedVM
        The function. The next values of its inputs are all on the device.
    times : int
        How often.
    """
    while times:
        machine()
        times -= 1
        step = None if times < 2 else _step(machine, times - 1)
        if step is not None:
            for _ in range(times - 1):
                step()
            times = 1


def _step(machine: PlannedVM, times: int) -> Callable[[], Any] | None:
    """Return what makes a whole step, of which `times` are to come; None if Python has to look at what it does."""
    commands = machine.unconditional_commands(times)
    if commands is None:
        return None
    kept = kept_by_driver(commands) if times >= _MIN_STEPS_FOR_DRIVER else None
    return lambda: _uninterrupted(commands) if kept is None else kept.enqueue()


def _uninterrupted(commands: CommandList) -> None:
    with defer_sigint():
        commit_point()
        commands.enqueue()
