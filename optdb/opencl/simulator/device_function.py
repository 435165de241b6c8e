"""A compiled function on a device, with methods that check, profile and explain its calls."""

from __future__ import annotations

import copy
import functools
import keyword
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypeVar

from optdb.device.futures import Future
from optdb.device.progress import calls_in_chunks, checked_times, in_chunks, shows_progress
from optdb.host import refuse_pytensor
from optdb.host.theano.functions.compiled import (
    Container,
    Function,
    computed_by,
    function_like,
    has_c_thunks,
    updates_of,
)
from optdb.lifters.explain import Explanation, explained
from optdb.opencl.simulator.diagnostics.checking import Checker, CheckReport
from optdb.opencl.simulator.diagnostics.memory import MemoryReport, memory_of
from optdb.opencl.simulator.diagnostics.profiling import ProfileReport, profile
from optdb.opencl.simulator.diagnostics.stepping import count_moves
from optdb.opencl.simulator.execution.executable import Executable
from optdb.opencl.simulator.execution.state import State
from optdb.runtime.timing import CommandRange

if TYPE_CHECKING:
    from optdb.opencl.simulator.simulator import SimulatorOCL

T = TypeVar("T")


class DeviceFunction:
    """A simulator's method: a compiled function on a device. Only one thread at a time runs the function."""

    def __init__(self, name: str, function: Function, state: State, simulator: SimulatorOCL) -> None:
        refuse_pytensor("SimulatorOCL", function)
        if not isinstance(function, Function):
            raise TypeError(f"expected a compiled function, as returned by theano.function, not {function!r}")
        self.__name__ = name
        #: The result of `inspect.signature`, with the function's inputs as parameters.
        self.__signature__ = signature = _signature(function)
        self._arguments = str(signature)
        self._simulator = simulator
        self._state = state
        self._function = function
        #: A copy of the function, used to parse the arguments.
        self._taker = function_like(function)
        self._executable = self._taker.fn = _executable(function, self._taker, state)
        self._checker: Checker | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function on the device.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments. They are copied to the device unless it shares the host's memory.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, in the same form as the function's results.

        Raises
        ------
        SimulatorClosed
            If the simulator was closed.
        TypeError
            If the arguments do not match the function; the error is the same as in Theano.
        MemoryError
            If the device has too little memory. In this case, shared variables keep their values.
        """
        with self._state.turn():
            self._state.check_open()
            try:
                return self._taker(*args, **kwargs)
            except BaseException as error:
                self._restore_defaults(error)
                raise

    def call_n_times(self, times: int, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function several times with the same arguments, and return the last call's results.

        The arguments are uploaded once, and only the last call's outputs are downloaded. Each call reads the original
        values, even for arguments that the function may overwrite (``theano.In(mutable=True)``); only arrays that your
        own in-place op overwrites keep their new values.

        Parameters
        ----------
        times : int
            The number of calls, at least 1.
        *args, **kwargs : array-like
            The arguments of each call.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results of the last call.

        Raises
        ------
        ValueError
            If `times` is not positive.
        SimulatorClosed
            If the simulator was closed.
        TypeError
            If the arguments do not match the function; the error is the same as in Theano.
        MemoryError
            If the device has too little memory.
        """
        times = checked_times(times)
        with self._state.turn():
            self._state.check_open()
            executable, with_bar = self._executable, shows_progress(self._simulator.progress_bar)

            def repeat(steps: int) -> None:
                executable.repeat(steps)
                if with_bar:  # the bar counts finished steps, not enqueued ones
                    self._state.context.queue.finish()

            if any(binding.may_change for binding in executable.inputs):
                with executable.sparing_arguments():
                    return calls_in_chunks(functools.partial(self, *args, **kwargs), times, with_bar)
            run = functools.partial(in_chunks, repeat, times, with_bar)
            return self._call_with(functools.partial(executable, run=run), args, kwargs)

    def run_async(self, /, *args: Any, **kwargs: Any) -> Future:
        """Start a call and return before the device has finished it, unless a node needs the host.

        The caller may change the arguments immediately. Later calls run after this call.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the function.

        Returns
        -------
        Future
            Its ``wait()`` returns the results. Results in host arrays are not valid before ``wait()`` returns.

        Raises
        ------
        SimulatorClosed
            If the simulator was closed.
        TypeError
            If the arguments do not match the function; the error is the same as in Theano.
        MemoryError
            If the device has too little memory.
        """
        with self._state.turn():
            self._state.check_open()
            events: list[Any] = []
            span = CommandRange(self._state.context)
            returned = self._call_with(functools.partial(self._executable, events=events), args, kwargs)
            span.stop()
            return Future(returned, span, events)

    def memory(self, /, *args: Any, **kwargs: Any) -> MemoryReport:
        """Return how much memory a call takes on the device, without running the call.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the call; only their shapes, and integers that determine shapes, matter.

        Returns
        -------
        MemoryReport
            Sizes in bytes. It prints as a table.

        Raises
        ------
        SimulatorClosed
            If the simulator was closed.
        optdb.runtime.recording.Untraceable
            If no call had arguments with these shapes, and the function cannot be traced.
        """
        with self._state.turn():
            self._state.check_open()
            return self._inspect(lambda: memory_of(self._executable, self._state), args, kwargs)

    def check(self, *args: Any, raise_on_difference: bool = False, **kwargs: Any) -> CheckReport:
        """Run a call step by step, and compare each step's results with those of Theano's own ops on the same inputs.

        Shared variables and inputs with updates do not change.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the call.
        raise_on_difference : bool
            Whether to raise if a step differs.

        Returns
        -------
        CheckReport
            The steps that differ, with full details of the first one. It prints as tables.

        Raises
        ------
        StepsDiffer
            If a step differs and `raise_on_difference` is true.
        """
        with self._state.turn():
            self._state.check_open()
            self._checker = self._checker or Checker(self._executable, self._title)
            report = self._inspect(self._checker.run, args, kwargs)
        if raise_on_difference:
            report.raise_if_different()
        return report

    def profile(self, *args: Any, n: int = 10, **kwargs: Any) -> ProfileReport:
        """Measure the device time of each kernel and the host time of each node in a call.

        Like `check`, this method changes no values.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the call.
        n : int
            Number of calls to measure, after a warm-up call.

        Returns
        -------
        ProfileReport
            The times. The report prints as tables; ``rows`` contains the data, and ``chrome_trace(path)`` writes a
            trace.

        Raises
        ------
        ValueError
            If `n` is less than 1.
        """
        with self._state.turn():
            self._state.check_open()
            return self._inspect(lambda: profile(self._executable, self._title, n), args, kwargs)

    def report(self, *args: Any, **kwargs: Any) -> Explanation:
        """Explain where each node runs and why; given a call's arguments, also report the call's transfers.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of a call, or none.

        Returns
        -------
        Explanation
            The same object that `optdb.explain` returns, which prints as tables and draws a diagram.

        Raises
        ------
        SimulatorClosed
            If the simulator was closed.
        TypeError
            If the arguments do not match the function; the error is the same as in Theano.
        """
        with self._state.turn():
            self._state.check_open()
            traffic = None
            if args or kwargs or not any(container.required for container in self._taker.input_storage):
                traffic = self._inspect(lambda: count_moves(self._executable), args, kwargs)
            return explained(self._title, *self._executable.placement(), traffic)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._simulator, self.__name__)

    def __repr__(self) -> str:
        return f"<method {self.__name__} of {self._simulator!r}>"

    @property
    def _title(self) -> str:
        return self._function.name or "function"

    def _inspect(self, look: Callable[[], T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Bind arguments as in a call, but call `look` instead of running the nodes; return the result of `look`."""
        inspected: list[T] = []

        def compute(output_subset: Any = None) -> list[Any]:
            inspected.append(look())
            return [None] * len(self._executable.output_cells)

        self._call_with(compute, args, kwargs)
        return inspected[0]

    def _call_with(self, compute: Callable[..., list[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function with `compute` instead of the executable."""
        vars(compute).update(need_update_inputs=False)
        try:
            return computed_by(self._taker, compute)(*args, **kwargs)
        except BaseException as error:
            self._restore_defaults(error)
            raise

    def _restore_defaults(self, error: BaseException) -> None:
        """Restore the inputs' defaults after an interrupt; after an `Exception`, Theano's Function does this itself."""
        if isinstance(error, Exception):
            return
        for container, (_, refeed, value) in zip(self._taker.input_storage, self._taker.defaults, strict=True):
            if refeed:
                container.storage[0] = getattr(value, "storage", [value])[0]

    def _kept_inputs(self) -> list[Any]:
        return [copy.copy(container.storage[0]) for container in _updated(self._taker)]

    def _keep_inputs(self, values: Iterable[Any]) -> None:
        for container, value in zip(_updated(self._taker), values, strict=True):
            container.storage[0] = value

    def _reset(self) -> None:
        """Set each input that has an update back to the input's value in Theano's function."""
        self._keep_inputs(copy.copy(container.storage[0]) for container in _updated(self._function))

    def _release(self) -> None:
        self._taker = self._executable = self._checker = None  # type: ignore[assignment]  # no closed method is used


def _executable(function: Function, taker: Function, state: State) -> Executable:
    """Return a function's executable, which reads arguments from the storage of `taker`."""
    specs, source = function.maker.inputs, function.maker.fgraph
    containers = zip(specs, function.input_storage, taker.input_storage, strict=True)
    inputs = [
        (spec.variable, (function_container if spec.shared else taker_container).storage)
        for spec, function_container, taker_container in containers
    ]
    mutable = {var for var, spec in zip(source.inputs, specs, strict=True) if spec.mutable}
    borrowed = [spec.borrow for spec in function.maker.outputs]
    return Executable(source, state, inputs, updates_of(function), mutable, borrowed, has_c_thunks(function))


def _updated(function: Function) -> list[Container]:
    pairs = zip(function.input_storage, function.maker.inputs, strict=True)
    return [container for container, spec in pairs if spec.update is not None and not spec.shared]


def _signature(function: Function) -> Signature:
    """Return the signature of a compiled function, without shared variables.

    An input is positional-only if it, or a later input, has no valid unique name. An input is keyword-only if it has no
    default but an earlier input has one.
    """
    taken = [
        (spec, required)
        for spec, (required, _, _) in zip(function.maker.inputs, function.defaults, strict=True)
        if not getattr(spec, "implicit", False) and not spec.shared
    ]
    names = _names([spec.name for spec, _ in taken])
    last_nameless = max((i for i, (spec, _) in enumerate(taken) if names[i] != spec.name), default=-1)
    parameters = []
    optional = False
    for i, (spec, required) in enumerate(taken):
        positional = Parameter.POSITIONAL_ONLY if i <= last_nameless else Parameter.POSITIONAL_OR_KEYWORD
        kind = Parameter.KEYWORD_ONLY if optional and required else positional
        optional = optional or not required
        default = Parameter.empty if required else _default(spec)
        parameters.append(Parameter(names[i], kind, default=default, annotation=str(spec.variable.type)))
    parameters.sort(key=lambda parameter: parameter.kind)
    return Signature(parameters)


def _names(given: list[str | None]) -> list[str]:
    """Return a name for each input: the input's own name if it is a unique identifier, else ``input_<index>``."""
    return [
        name
        if name is not None and name.isidentifier() and not keyword.iskeyword(name) and given.count(name) == 1
        else f"input_{i}"
        for i, name in enumerate(given)
    ]


def _default(spec: Any) -> Any:
    return getattr(spec.value, "data", spec.value) if hasattr(spec.value, "storage") else spec.value
