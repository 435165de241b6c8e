"""What a simulator's users call: a compiled function on a device, with all that can be asked about a call."""

from __future__ import annotations

import operator
from typing import Any

from optdb.host.compiled import Function
from optdb.lifters.explain import Explanation
from optdb.opencl.simulator.check_report import CheckReport
from optdb.opencl.simulator.checking import check
from optdb.opencl.simulator.future import Future
from optdb.opencl.simulator.memory import MemoryReport, memory_of
from optdb.opencl.simulator.method import Method
from optdb.opencl.simulator.profile_report import ProfileReport
from optdb.opencl.simulator.profiling import profile
from optdb.opencl.simulator.progress import shows_progress
from optdb.opencl.simulator.reporting import report
from optdb.opencl.simulator.session import Session
from optdb.opencl.simulator.signature import signature_of

__all__ = ["DeviceFunction"]


class DeviceFunction:
    """A compiled function on a simulator's device, called as the original is; one thread at a time calls it.

    Parameters
    ----------
    name : str
        Of the simulator's method.
    function : theano.compile.function_module.Function
        It stays as it is.
    session : Session
        The simulator's device, shared variables and lock.

    Attributes
    ----------
    method : Method
        What computes; released when the simulator is closed.
    """

    def __init__(self, name: str, function: Function, session: Session) -> None:
        self._session = session
        self.__name__ = name
        #: What `inspect.signature` returns: the inputs of the function.
        self.__signature__ = signature_of(function)
        self.method = Method(function, session.context_name, session.state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute on the device what the function computes; arguments and results are the function's."""
        with self._session.lock:
            self._session.begin_call()
            return self.method.call(*args, **kwargs)

    def call_n_times(self, times: int, /, *args: Any, **kwargs: Any) -> Any:
        """Call it several times with the same arguments; see `SimulatorOCL.call_n_times`."""
        times = operator.index(times)
        if times < 1:
            raise ValueError(f"a function can be called 1 time or more, not {times}")
        with self._session.lock:
            self._session.begin_call()
            return self.method.call_n_times(times, args, kwargs, shows_progress(self._session.progress_bar))

    def run_async(self, /, *args: Any, **kwargs: Any) -> Future:
        """Begin a call; see `SimulatorOCL.run_async`."""
        with self._session.lock:
            self._session.begin_call()
            return self.method.begin(args, kwargs)

    def check(self, *args: Any, raise_on_difference: bool = False, **kwargs: Any) -> CheckReport:
        """Compare a call with what Theano's own ops give, as `SimulatorOCL.check` does."""
        with self._session.lock:
            self._session.begin_call()
            found = check(self.method, args, kwargs)
        if raise_on_difference:
            found.raise_if_different()
        return found

    def profile(self, *args: Any, n: int = 10, **kwargs: Any) -> ProfileReport:
        """Measure where the time of a call goes, as `SimulatorOCL.profile` does."""
        with self._session.lock:
            self._session.begin_call()
            return profile(self.method, args, kwargs, n)

    def report(self, *args: Any, **kwargs: Any) -> Explanation:
        """Tell what runs where, as `SimulatorOCL.report` does."""
        with self._session.lock:
            self._session.begin_call()
            return report(self.method, args, kwargs)

    def memory(self, /, *args: Any, **kwargs: Any) -> MemoryReport:
        """Return what a call takes on the device; see `SimulatorOCL.memory`."""
        session = self._session
        with session.lock:
            session.begin_call()
            return memory_of(self.method, session.state, session.context, args, kwargs)

    def close(self) -> None:
        """Release what computes, and its memory; the session is closed."""
        self.method = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how it is pickled and copied: as the simulator, and its name there."""
        return getattr, (self._session.owner, self.__name__)

    def __repr__(self) -> str:
        return f"<method {self.__name__} of {self._session.owner!r}>"
