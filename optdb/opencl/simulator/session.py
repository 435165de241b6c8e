"""What the functions of one simulator have in common: the device, the shared variables, and whose turn it is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from optdb.host.config import config
from optdb.host.logging import logger
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator.state import State

if TYPE_CHECKING:
    from optdb.opencl.simulator.simulator import SimulatorOCL

__all__ = ["Session", "SimulatorClosed"]


class SimulatorClosed(RuntimeError):
    """A simulator was used after it was closed."""


class Session:
    """The device, the shared variables and the lock of a simulator.

    Parameters
    ----------
    owner : SimulatorOCL
        The simulator: pickles of its functions are pickles of it.
    device : str
        As `SimulatorOCL` takes it.
    progress_bar : bool or None
        Whether long runs show a progress bar.

    Attributes
    ----------
    context_name : str
        The device, by the name of its context.
    context : Context
        The device.
    state : State
        The shared variables.
    closed_as : str or None
        What the simulator was when it was closed, in words; None as long as it is open.
    """

    def __init__(self, owner: SimulatorOCL, device: str, progress_bar: bool | None) -> None:
        self.owner = owner
        self.device = device
        self.progress_bar = progress_bar
        self.context_name = context_of(device)
        self.context = get_context(self.context_name)
        self.state = State(self.context_name)
        self.closed_as: str | None = None
        #: Held by a thread that uses the simulator; `lock` checks before whether it may.
        self.turn = threading.RLock()
        self._warned = False

    @property
    def lock(self) -> threading.RLock:
        """What a thread holds that uses the simulator.

        Raises
        ------
        ForkedContext
            In a forked process, where a thread that does not exist there may hold it.
        SimulatorClosed
            If the simulator was closed.
        """
        _ = self.context.queue
        self.check_open()
        return self.turn

    def begin_call(self) -> None:
        """Check that a call can be made, by a thread that holds the lock; warn once if Theano's values were changed.

        Raises
        ------
        SimulatorClosed
            If the simulator was closed while the thread waited for the lock.
        """
        self.check_open()
        if self._warned or not config.optdb.trace:
            return
        changed = [str(shared.name) for shared in self.state if not shared.in_step]
        if changed:
            self._warned = True
            logger.warning(
                "Theano's values of %s were changed, and the simulator has others; "
                "sync_from_theano() or sync_to_theano() brings them into step.",
                ", ".join(changed),
            )

    def check_open(self) -> None:
        """Do nothing if the simulator is open.

        Raises
        ------
        SimulatorClosed
            If it was closed.
        """
        if self.closed_as is not None:
            raise SimulatorClosed(
                f"{self.closed_as}: its memory on the device was released. Make another one of the same function: "
                "optdb.SimulatorOCL(function)"
            )

    def close(self, description: str) -> None:
        """Release the shared variables; the lock is held."""
        self.context.queue.finish()
        self.closed_as = description
        for shared in self.state:
            shared.cell[0] = None
