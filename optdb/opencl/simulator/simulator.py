"""SimulatorOCL: a compiled function on a device, and other functions that use the same shared variables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from optdb.device.export import Examples, Report, write
from optdb.host.api.config import logger
from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.theano.functions.compiled import Function
from optdb.html_tables import HtmlTables
from optdb.lifters.text_tables import new_table
from optdb.opencl.exporting import of_method
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator.device_function import DeviceFunction
from optdb.opencl.simulator.execution.state import Shared, State
from optdb.runtime.device_profiles import DEVICE_KINDS, DeviceKind
from optdb.runtime.errors import DeviceError
from optdb.unpickling import restore

#: The name of a simulator's own function among its methods.
CALL = "__call__"


class SimulatorOCL(HtmlTables, DeviceFunction):
    """Runs compiled functions on an OpenCL device.

    The functions are not modified. The functions' shared variables are copied to the device, and calls change only
    these copies. `sync_to_theano` copies the simulator's values to Theano, and `sync_from_theano` copies Theano's
    values to the simulator.

    Parameters
    ----------
    function : theano.compile.function_module.Function
        The function that runs when the simulator itself is called.
    device : str
        The name of a context, or a device, given as ``'opencl0:0'`` or as a part of the device's name. ``'auto'``
        selects the device of the default context, or else the best working device.
    progress_bar : bool, optional
        Whether long runs of `call_n_times` show a progress bar on standard error. By default, a bar is shown if
        standard error is a terminal.

    Raises
    ------
    TypeError
        If `function` is not a compiled function.
    optdb.runtime.errors.DeviceError
        If there is no such device.

    Examples
    --------
    >>> sim = SimulatorOCL(f)                     # doctest: +SKIP
    >>> sim(x)                                    # doctest: +SKIP
    >>> sim.sync_to_theano()                      # doctest: +SKIP

    At the end of a ``with`` block, the memory on the device is released:

    >>> with SimulatorOCL(f) as sim:              # doctest: +SKIP
    ...     sim.call_n_times(1000, x)
    ...     sim.sync_to_theano()
    """

    def __init__(self, function: Function, device: str = "auto", progress_bar: bool | None = None) -> None:
        self._device = device
        #: Whether long runs of `call_n_times` show a progress bar; None shows it only on a terminal.
        self.progress_bar = progress_bar
        self._added: dict[str, DeviceFunction] = {}
        super().__init__(CALL, function, State(context_of(device)), self)

    def add_method(self, name: str, function: Function) -> None:
        """Make ``simulator.name(...)`` run another function on the same shared variables.

        Parameters
        ----------
        name : str
            The method's name, an identifier that does not begin with ``_``.
        function : theano.compile.function_module.Function
            The function, which is not modified.

        Raises
        ------
        ValueError
            If the name is taken or invalid.
        TypeError
            If `function` is not a compiled function.
        """
        if not name.isidentifier() or name.startswith("_"):
            raise ValueError(
                f"{name!r} cannot be the name of a method: it must be an identifier that does not begin with '_'"
            )
        if hasattr(self, name):
            raise ValueError(f"{name!r} is taken: the simulator already has an attribute of that name")
        with self._state.turn():
            self._state.check_open()
            self._added[name] = DeviceFunction(name, function, self._state, self)

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__.get("_state")
        if state is not None and not name.startswith("__"):
            state.check_open()
        added = self.__dict__.get("_added", {})
        if name in added:
            return added[name]
        methods = ", ".join(sorted(added)) or "none"
        raise AttributeError(f"the simulator has no attribute {name!r}; methods that were added: {methods}")

    def __getitem__(self, name: str) -> DeviceFunction:
        self._state.check_open()
        return self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter(self._added)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self})

    @property
    def _methods(self) -> dict[str, DeviceFunction]:
        return {CALL: self, **self._added}

    def reset(self) -> None:
        """Reset all shared variables, and all inputs that calls update, to Theano's values.

        Raises
        ------
        SimulatorClosed
            If the simulator was closed.
        """
        with self._state.turn():
            self._state.check_open()
            for shared in self._state:
                shared.from_theano()
            for function in self._methods.values():
                function._reset()

    def close(self) -> None:
        """Release the memory on the device; later use of anything but `closed` and ``repr`` raises `SimulatorClosed`.

        Values that were not copied with `sync_to_theano` are lost. Closing a simulator twice is allowed.
        """
        with self._state.turn():
            if self.closed:
                return
            self._state.close(repr(self).replace("<SimulatorOCL", "<closed SimulatorOCL", 1))
            for function in self._methods.values():
                function._release()
            self._added = {}

    @property
    def closed(self) -> bool:
        """Whether the simulator was closed."""
        return self._state.closed_as is not None

    def __enter__(self) -> SimulatorOCL:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def export(
        self,
        path: str | Path,
        examples: Examples | None = None,
        device_kinds: Sequence[DeviceKind] = DEVICE_KINDS,
    ) -> list[Report]:
        """Write all functions and the shared variables' current device values to a file for `optdb.load`.

        Parameters
        ----------
        path : str or Path
            Path of the file, which is replaced if it exists.
        examples : sequence or mapping, optional
            Example calls, each a sequence of arguments or a mapping of names to arguments. If methods were added, a
            mapping from method names to example calls, in which None stands for the simulator's own function. Only the
            shapes of arrays, and integers that determine shapes, matter. By default, each function's latest calls are
            the examples.
        device_kinds : sequence of str
            Kinds of device to export for: 'cpu' for CPU devices, 'gpu' for all others.

        Returns
        -------
        list of Report
            The outcome of each example.

        Raises
        ------
        optdb.opencl.exporting.Untraceable
            If a function contains a step that a file cannot store. If such a step stays on the host, the message names
            it.
        """
        with self._state.turn():
            self._state.check_open()
            functions = {
                None if name == CALL else name: of_method(method._function, method._executable)
                for name, method in self._methods.items()
            }
            return write(path, functions, examples, device_kinds)

    def __debugprint__(self) -> list[FunctionGraph]:
        """Return each method's device graph, which ``theano.printing.debugprint`` prints."""
        with self._state.turn():
            self._state.check_open()
            return [function._executable.graph.fgraph for function in self._methods.values()]

    @property
    def shared(self) -> list[Variable]:
        """Theano's shared variables that the simulator has copied."""
        self._state.check_open()
        return [shared.variable for shared in self._state]

    def get(self, which: Any) -> Any:
        """Return a host copy of a shared variable's value on the device.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable or its name.

        Returns
        -------
        numpy.ndarray or object
            An array with the variable's dtype and current shape, or another object, such as a random state.

        Raises
        ------
        KeyError
            If there is no such variable, or if several variables have that name.
        SimulatorClosed
            If the simulator was closed.
        """
        with self._state.turn():
            self._state.check_open()
            return self._state.find(which).host_value()

    def set(self, which: Any, value: Any) -> None:
        """Set a shared variable's value on the device; Theano's value does not change.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable or its name.
        value : array-like
            The new value, with as many dimensions as the variable and any shape that the variable's type allows. It is
            converted to the variable's dtype if Theano would convert it.

        Raises
        ------
        KeyError
            If there is no such variable, or if several variables have that name.
        TypeError
            If the variable's type does not accept the value.
        SimulatorClosed
            If the simulator was closed.
        """
        with self._state.turn():
            self._state.check_open()
            self._state.find(which).assign(value)

    def sync_to_theano(self, *which: Any) -> None:
        """Copy shared variables from the device to Theano.

        Parameters
        ----------
        *which : SharedVariable or str
            Theano's variables or their names; by default, all shared variables.

        Raises
        ------
        KeyError
            If the simulator has no such variable, or if several variables have that name.
        SimulatorClosed
            If the simulator was closed.
        """
        with self._state.turn():
            self._state.check_open()
            for shared in self._state.chosen(which):
                shared.to_theano()

    #: Another name for `sync_to_theano`, from the discussion in which simulators were proposed.
    sync_shared_to_parent = sync_to_theano

    def sync_from_theano(self, *which: Any) -> None:
        """Copy shared variables from Theano to the device.

        Parameters
        ----------
        *which : SharedVariable or str
            Theano's variables or their names; by default, all shared variables.

        Raises
        ------
        KeyError
            If the simulator has no such variable, or if several variables have that name.
        SimulatorClosed
            If the simulator was closed.
        """
        with self._state.turn():
            self._state.check_open()
            for shared in self._state.chosen(which):
                shared.from_theano()

    @property
    def device(self) -> str:
        """The name of the device."""
        return self._state.context.profile.name

    @property
    def functions(self) -> dict[str, Function]:
        """Theano's functions, by method name, with ``'__call__'`` for the simulator's own function."""
        self._state.check_open()
        return {name: function._function for name, function in self._methods.items()}

    def __repr__(self) -> str:
        if self._state.closed_as is not None:
            return self._state.closed_as
        function_name = self._function.name
        methods = "".join(f", {name}" for name in self)
        return f"<SimulatorOCL {function_name or 'of a function'}{methods} on {self.device}: {len(self._state)} shared>"

    # This method is not called `render`, because the user may add a method with that name.
    def __rich__(self) -> Group:
        """Return tables of methods and shared variables; the ``repr`` if the simulator is closed."""
        if self.closed:
            return Group(Text(repr(self)))
        with self._state.turn():
            self._state.check_open()
            methods = [(name, method._function.name or "", method._arguments) for name, method in self._methods.items()]
            shared = [_shared_row(shared) for shared in self._state]
        tables = [
            new_table(f"SimulatorOCL on {self.device}", ("method", "function", "call"), (), methods),
            new_table("shared variables", ("name", "type", "lies"), ("shape", "bytes"), shared),
        ]
        return Group(*[table for table in tables if table.row_count])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy only the functions, the requested device and the state.

        A copy shares the functions but has its own state; a deep copy also has its own functions.
        """
        with self._state.turn():
            self._state.check_open()
            values = [shared.value() for shared in self._state]
            method_inputs = {name: function._kept_inputs() for name, function in self._methods.items()}
            name = f"{rebuild.__module__}:{rebuild.__qualname__}"
            return restore, (name, self.functions, self._device, values, method_inputs)


def _shared_row(shared: Shared) -> tuple[Any, ...]:
    value = shared.cell[0]
    where = "on the device" if shared.array_type is not None else "on the host"
    nbytes = getattr(value, "nbytes", None)
    size = "" if nbytes is None else f"{nbytes:,}"
    return shared.variable.name or "", shared.variable.type, where, getattr(value, "shape", ""), size


def opencl_backend(device: str = "auto") -> Callable[[Function], SimulatorOCL]:
    """Return a function that creates simulators on a device, for `optimize`.

    Parameters
    ----------
    device : str
        The `device` parameter of `SimulatorOCL`.

    Returns
    -------
    callable
        Takes a compiled function, returns a `SimulatorOCL`, and raises the same errors as its constructor.
    """
    return functools.partial(SimulatorOCL, device=device)


#: Another name for `opencl_backend`, from the first proposal of simulators; despite this name, sizes need not be fixed.
fixed_size_opencl_backend = opencl_backend


def rebuild(
    functions: dict[str, Function], device: str, values: list[Any], method_inputs: dict[str, list[Any]]
) -> SimulatorOCL:
    """Recreate a simulator from its pickled contents; called by `optdb.unpickling.restore`."""
    functions = dict(functions)
    simulator = SimulatorOCL(functions.pop(CALL), _device_here(device))
    for name, function in functions.items():
        simulator.add_method(name, function)
    for shared, value in zip(simulator._state, values, strict=True):
        shared.assign(value)
    for name, inputs in method_inputs.items():
        simulator._methods[name]._keep_inputs(inputs)
    return simulator


def _device_here(device: str) -> str:
    """Return `device` if the device exists; otherwise warn and return ``'auto'``."""
    try:
        context_of(device)
    except DeviceError as error:
        if device in (None, "auto"):
            raise
        fallback = get_context(context_of("auto")).profile.name
        logger.warning("A simulator that was on the device %s is now on %s: %s", device, fallback, error)
        return "auto"
    return device
