"""SimulatorOCL: what users have of all this."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from optdb.deprecation import warn_renamed
from optdb.host.compiled import Function, optimize
from optdb.host.graph import FunctionGraph, Variable
from optdb.lifters.explain import Explanation
from optdb.opencl.exporting import Report
from optdb.opencl.simulator.check_report import CheckReport
from optdb.opencl.simulator.device_function import DeviceFunction
from optdb.opencl.simulator.exporting import Examples, export
from optdb.opencl.simulator.future import Future
from optdb.opencl.simulator.memory import MemoryReport
from optdb.opencl.simulator.profile_report import ProfileReport
from optdb.opencl.simulator.rebuilding import reduced
from optdb.opencl.simulator.session import Session, SimulatorClosed
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind

__all__ = ["SimulatorClosed", "SimulatorOCL", "fixed_size_opencl_backend", "opencl_backend", "optimize"]

#: What the function that a simulator is made of is called among its methods.
CALL = "__call__"


class SimulatorOCL:
    """Runs compiled functions on an OpenCL device.

    The functions stay as they are. Their shared variables are copied to the device, and live there from then on:
    what the simulator does to them Theano sees after `sync_to_theano`, and the other way round.

    Parameters
    ----------
    function : theano.compile.function_module.Function
        What calls of the simulator itself compute.
    device : str
        The name of a context, or which device: ``'opencl0:0'``, a part of a device's name; ``'auto'`` is the default
        context's, or else the best device that works.
    progress_bar : bool, optional
        Whether long runs of `call_n_times` show a progress bar on standard error; where that is a terminal, if not
        given.

    Raises
    ------
    TypeError
        If `function` is no compiled function.
    optdb.runtime.devices.DeviceError
        If there is no such device.

    Examples
    --------
    >>> sim = SimulatorOCL(f)                     # doctest: +SKIP
    >>> sim(x)                                    # doctest: +SKIP
    >>> sim.sync_to_theano()                      # doctest: +SKIP

    In a ``with`` block, the memory on the device is released at the end:

    >>> with SimulatorOCL(f) as sim:              # doctest: +SKIP
    ...     sim.call_n_times(1000, x)
    ...     sim.sync_to_theano()
    """

    def __init__(self, function: Function, device: str = "auto", progress_bar: bool | None = None) -> None:
        self._session = Session(self, device, progress_bar)
        self._methods: dict[str, DeviceFunction] = {}
        self._add(CALL, function)
        #: What `inspect.signature` returns: the inputs of the function.
        self.__signature__ = self._methods[CALL].__signature__

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute on the device what the function computes; arguments and results are the function's."""
        return self._own(*args, **kwargs)

    def call_n_times(self, times: int, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function several times with the same arguments, and return what the last call returns.

        The arguments go to the device once, and only the last outputs come back. As far as no node needs the host,
        a step is nothing but its commands.

        Raises
        ------
        ValueError
            If `times` is not positive.
        """
        return self._own.call_n_times(times, *args, **kwargs)

    def run_async(self, /, *args: Any, **kwargs: Any) -> Future:
        """Begin a call, and return before the device is done with it, as far as no node needs the host.

        Later calls come behind it; the arguments may be changed.
        """
        return self._own.run_async(*args, **kwargs)

    def memory(self, /, *args: Any, **kwargs: Any) -> MemoryReport:
        """Return what a call takes on the device, without making it; arguments are the function's.

        Raises
        ------
        optdb.runtime.tracing.Untraceable
            If there was no call with such arguments, and it cannot be known without one.
        """
        return self._own.memory(*args, **kwargs)

    def add_method(self, name: str, function: Function) -> None:
        """Let ``simulator.name(...)`` compute another function, on the same shared variables.

        Raises
        ------
        ValueError
            If the name is taken, or is no name.
        TypeError
            If `function` is no compiled function.
        """
        if not name.isidentifier() or name.startswith("_"):
            raise ValueError(
                f"{name!r} cannot be the name of a method: it has to be an identifier, and not begin with '_'"
            )
        if name in self._methods or hasattr(type(self), name):
            raise ValueError(f"{name!r} is taken: the simulator has a method of that name")
        self._add(name, function)

    def __getattr__(self, name: str) -> Any:
        session = self.__dict__.get("_session")
        if session is not None and not name.startswith("__"):
            session.check_open()
        methods = self.__dict__.get("_methods", {})
        if name in methods and name != CALL:
            return methods[name]
        there = ", ".join(sorted(known for known in methods if known != CALL)) or "none"
        raise AttributeError(f"the simulator has no attribute {name!r}; methods that were added: {there}")

    def __getitem__(self, name: str) -> Any:
        self._session.check_open()
        if name in self._methods and name != CALL:
            return self._methods[name]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._methods and name != CALL

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._methods if name != CALL)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self})

    # From the beginning to the end

    def reset(self) -> None:
        """Start over: let all shared variables, and inputs that calls update, have Theano's values again."""
        with self._session.lock:
            for shared in self._session.state:
                shared.from_theano()
            for function in self._methods.values():
                function.method.reset()

    def close(self) -> None:
        """Release the memory on the device. Later use, but for `closed` and ``repr``, raises `SimulatorClosed`.

        What was not copied by `sync_to_theano` is lost. Closing twice is the same as once.
        """
        with self._session.turn:
            if self.closed:
                return
            self._session.close(repr(self).replace("<SimulatorOCL", "<closed SimulatorOCL", 1))
            for function in self._methods.values():
                function.close()
            self._methods = {}

    @property
    def closed(self) -> bool:
        """Whether the simulator was closed."""
        return self._session.closed_as is not None

    def __enter__(self) -> SimulatorOCL:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Files

    def export(
        self,
        path: str | Path,
        examples: Examples | None = None,
        device_kinds: Sequence[DeviceKind] = DEVICE_KINDS,
        *,
        flavours: Sequence[DeviceKind] | None = None,
    ) -> list[Report]:
        """Write all functions, and the shared variables as they are on the device now, into a file for `optdb.load`.

        Parameters
        ----------
        path : str or Path
            Where to; what is there is replaced.
        examples : sequence or mapping, optional
            Calls, each a sequence of arguments or a mapping of them by name; for the methods that were added, a mapping
            of their names to calls, in which None stands for the simulator's own function. Shapes matter, and whole
            numbers that decide over shapes. Without examples, functions are written for calls like their latest ones.
        device_kinds : sequence of str
            For which devices: 'cpu' for processors, 'gpu' for all else.
        flavours : sequence of str, optional
            An old name of `device_kinds`.

        Returns
        -------
        list of Report
            What came of each example.

        Raises
        ------
        optdb.opencl.exporting.Untraceable
            If something is done that a file cannot hold; by name, where a step was left on the host.
        """
        if flavours is not None:
            warn_renamed("export(flavours=...)", "export(device_kinds=...)")
            device_kinds = flavours
        with self._session.lock:
            methods = {name: function.method for name, function in self._methods.items()}
            return export(path, methods, CALL, examples, device_kinds)

    # Looking inside

    def check(self, *args: Any, raise_on_difference: bool = False, **kwargs: Any) -> CheckReport:
        """Compute a call step by step, and compare each step with what Theano's own ops give for the same inputs.

        Nothing changes: shared variables, and inputs with updates, stay as they are. For a method that was added, it is
        ``simulator.name.check(...)``.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        raise_on_difference : bool
            Whether to raise if a step differs.

        Returns
        -------
        CheckReport
            Which steps differ; the first of them in full. It prints as tables.

        Raises
        ------
        StepsDiffer
            If a step differs, and that was asked for.
        """
        return self._own.check(*args, raise_on_difference=raise_on_difference, **kwargs)

    def profile(self, *args: Any, n: int = 10, **kwargs: Any) -> ProfileReport:
        """Measure where the time of a call goes: each kernel's on the device, each node's on the host.

        Nothing changes, as in `check`. For a method that was added, it is ``simulator.name.profile(...)``.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        n : int
            How many calls are measured, behind one that is not.

        Returns
        -------
        ProfileReport
            It prints as tables; ``rows`` is for programs, and ``chrome_trace(path)`` writes a file for browsers.

        Raises
        ------
        ValueError
            If `n` is less than 1.
        """
        return self._own.profile(*args, n=n, **kwargs)

    def __debugprint__(self) -> list[FunctionGraph]:
        """Return what ``theano.printing.debugprint`` prints: the graphs on the device, one for each method."""
        with self._session.lock:
            return [function.method.graph.fgraph for function in self._methods.values()]

    def report(self, *args: Any, **kwargs: Any) -> Explanation:
        """Tell what runs where, and why; with a call's arguments, what that call moves, too. Nothing changes.

        For a method that was added, it is ``simulator.name.report(...)``.

        Parameters
        ----------
        *args, **kwargs
            As for a call, or none.

        Returns
        -------
        Explanation
            As `optdb.explain` gives it: it prints as tables, and draws a picture.
        """
        return self._own.report(*args, **kwargs)

    # Shared variables

    @property
    def shared(self) -> list[Variable]:
        """Theano's shared variables of which the simulator has copies."""
        self._session.check_open()
        return [shared.variable for shared in self._session.state]

    def get(self, which: Any) -> Any:
        """Return a copy of a shared variable's value on the device, as the host has it.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable, or its name.

        Raises
        ------
        KeyError
            If there is no such, or several have the name.
        """
        with self._session.lock:
            return self._session.state.find(which).host_value()

    def set(self, which: Any, value: Any) -> None:
        """Give a shared variable on the device another value; Theano's stays as it is.

        Raises
        ------
        KeyError
            If there is no such, or several have the name.
        TypeError
            If the variable's type does not admit the value.
        """
        with self._session.lock:
            self._session.state.find(which).assign(value)

    def sync_to_theano(self, *which: Any) -> None:
        """Copy shared variables from the device to Theano: those that are given, or all."""
        with self._session.lock:
            for shared in self._session.state.chosen(which):
                shared.to_theano()

    #: As the thread has it.
    sync_shared_to_parent = sync_to_theano

    def sync_from_theano(self, *which: Any) -> None:
        """Copy shared variables from Theano to the device: those that are given, or all."""
        with self._session.lock:
            for shared in self._session.state.chosen(which):
                shared.from_theano()

    # What it is

    @property
    def progress_bar(self) -> bool | None:
        """Whether long runs of `call_n_times` show a progress bar; None if that is so on a terminal."""
        return self._session.progress_bar

    @progress_bar.setter
    def progress_bar(self, shown: bool | None) -> None:
        self._session.progress_bar = shown

    @property
    def device(self) -> str:
        """What the device calls itself."""
        return self._session.context.profile.name

    @property
    def functions(self) -> dict[str, Function]:
        """Theano's functions, by the names of the methods; that of the simulator itself is ``'__call__'``."""
        self._session.check_open()
        return {name: function.method.function for name, function in self._methods.items()}

    def __repr__(self) -> str:
        if self.closed:
            return self._session.closed_as
        own = self._methods[CALL].method.function.name
        methods = "".join(f", {name}" for name in self)
        return f"<SimulatorOCL {own or 'of a function'}{methods} on {self.device}: {len(self._session.state)} shared>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how the simulator is pickled and copied: as its functions, the device as it was asked for, and the state.

        A copy is of the same functions, and has a state of its own; a deep copy has functions of its own, too.
        """
        with self._session.lock:
            return reduced(self)

    # Inside

    def _add(self, name: str, function: Function) -> None:
        if not isinstance(function, Function):
            raise TypeError(f"expected a compiled function, as theano.function returns it, and not {function!r}")
        with self._session.lock:
            self._methods[name] = DeviceFunction(name, function, self._session)

    @property
    def _own(self) -> DeviceFunction:
        """What a call of the simulator itself calls."""
        self._session.check_open()
        return self._methods[CALL]


def opencl_backend(device: str = "auto") -> Callable[[Function], SimulatorOCL]:
    """Return what makes simulators on a device, for `optimize`.

    Parameters
    ----------
    device : str
        As `SimulatorOCL` takes it.
    """
    return functools.partial(SimulatorOCL, device=device)


def fixed_size_opencl_backend(device: str = "auto") -> Callable[[Function], SimulatorOCL]:
    """Return what `opencl_backend` does: the name by which simulators were first proposed. Sizes need not be fixed."""
    return opencl_backend(device)
