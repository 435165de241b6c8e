"""The functions in a file. A call runs a trace whose guards hold; memory is allocated once for each set of sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from optdb.numpy_types import HostArray
from optdb.runtime.calling import Signature
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.errors import FileError, ShapeError
from optdb.runtime.exported.binding import Bound, Resources
from optdb.runtime.exported.manifest import Function, SavedTrace
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.library import cl

#: The maximum number of failed guards listed in an error.
_NAMED = 8


class LoadedMethod:
    """A function in a file.

    Attributes
    ----------
    name : str
        The function's name.
    signature : Signature
        The function's arguments and results.
    """

    def __init__(self, spec: Function, resources: Resources) -> None:
        self.name = spec.name
        self.signature: Signature = spec.signature
        self._resources = resources
        self._path = resources.archive.path
        names = [argument.name or f"argument {i}" for i, argument in enumerate(self.signature.arguments)]
        #: The traces, each with its `GuardSet`.
        self._traces = [(trace, trace.rules(names)) for trace in self._suitable(spec)]
        deciders = frozenset().union(*(trace.deciding(rules) for trace, rules in self._traces))
        self._deciding = sorted(deciders)
        self._free = frozenset(range(len(self.signature.arguments))) - deciders

    def _suitable(self, spec: Function) -> list[SavedTrace]:
        context = self._resources.context
        device = context.profile.name
        traces = [trace for trace in spec.traces if trace.device_kind == context.profile.device_kind]
        if not traces:
            kinds = sorted({trace.device_kind for trace in spec.traces})
            raise FileError(
                f"{self._path} has {spec.name} for devices of kind {', '.join(kinds) or 'none'}, but {device} is of "
                f"kind {context.profile.device_kind}.\n"
                "The cure: name another device, or export with device_kinds=('cpu', 'gpu')"
            )
        for dtype in sorted({dtype for trace in traces for dtype in trace.dtypes}):
            reason = context.unsupported_reason(dtype)
            if reason is not None:
                raise FileError(
                    f"{spec.name} of {self._path} needs {dtype}, but {reason}.\nThe cure: name another device"
                )
        return traces

    @property
    def nbytes(self) -> int:
        """The number of device bytes that the function's values take, for all cached argument sizes."""
        return sum(bound.nbytes for bound in self._resources.budget.of_method(self.name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the exported function.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments, with the dtypes and numbers of dimensions that ``signature`` shows.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, in the form in which the exported function returns them.

        Raises
        ------
        TypeError
            If the arguments do not match the signature.
        ShapeError
            If the file does not support the arguments' shapes.
        LimitError
            If the call exceeds a limit that was passed to `load`.
        MemoryError
            If the device has too little memory.
        ForkedContext
            If this process is a fork of the process that loaded the file.
        """
        return self.run(self.signature.bind(args, kwargs, self.name))

    def run(self, arguments: Sequence[HostArray]) -> Any:
        """Call the function with arrays that have already been converted.

        Parameters
        ----------
        arguments : sequence of numpy.ndarray
            An array for each argument in ``signature``, with the argument's dtype and number of dimensions.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, in the form in which the exported function returns them.

        Raises
        ------
        ShapeError
            If the file does not support the arguments' shapes.
        LimitError
            If the call exceeds a limit that was passed to `load`.
        MemoryError
            If the device has too little memory.
        ForkedContext
            If this process is a fork of the process that loaded the file.
        """
        return self._do(lambda call: self.signature.result(self._bound_for(call).run(call)), arguments)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Prepare calls with these sizes, so that they wait neither for allocations nor for compilers.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments, with the dtypes and numbers of dimensions that ``signature`` shows.

        Raises
        ------
        Exception
            The same errors as a call.
        """
        self._do(self._bound_for, self.signature.bind(args, kwargs, self.name))

    def _do(self, what: Callable[[Call], Any], arguments: Sequence[HostArray]) -> Any:
        """Run a callback for a call; errors name the function and the file."""
        self._resources.context.check_process()
        with self._resources.lock:
            call = Call(arguments, self._resources.context.profile.compute_units)
            try:
                return what(call)
            except FileError as error:
                raise type(error)(f"{self.name} of {self._path}: {error}") from None
            except cl.MemoryError as error:
                raise MemoryError(f"{self.name} of {self._path}: the device has too little memory ({error})") from error
            except cl.Error as error:
                raise FileError(f"{self.name} of {self._path}: the device rejected it ({error})") from error

    def _bound_for(self, call: Call) -> Bound:
        sizes = (*(x.shape for x in call.arguments), *(call.arguments[position].item() for position in self._deciding))
        budget = self._resources.budget
        for number in range(len(self._traces)):
            bound = budget.get(self.name, (number, sizes))
            if bound is not None and bound.suits(call):
                return bound
        # If the cache is full, evict a trace before the next one allocates memory, since there may be too little for
        # both.
        budget.begin(self.name)
        number, bound = self._bind(call)
        budget.put(self.name, (number, sizes), bound)
        return bound

    def _bind(self, call: Call) -> tuple[int, Bound]:
        broken: dict[str, None] = {}
        for number, (trace, rules) in enumerate(self._traces):
            values = self._values(trace, rules, call)
            if isinstance(values, Values):
                self._rehearse(trace, values, call)
                return number, Bound(trace, rules, values, call, self._resources, self._free)
            broken[values] = None
        shapes = ", ".join(
            self.signature.called(position) + (f"={x}" if position in self._deciding else f" of shape {x.shape}")
            for position, x in enumerate(call.arguments)
        )
        reasons = "".join(f"\n    {reason}" for reason in itertools.islice(broken, _NAMED))
        if len(broken) > _NAMED:
            reasons += f"\n    or {len(broken) - _NAMED} others"
        raise ShapeError(
            f"{self.name} of {self._path} was not exported for {shapes}. The exported traces require{reasons}\n"
            "The cure: export it with an example of such arguments as well"
        )

    def _rehearse(self, trace: SavedTrace, values: Values, call: Call) -> None:
        resources = self._resources
        if resources.rehearsals is None:
            return
        variants = {
            (
                resources.kernels.source(launch.kernel),
                launch.kernel.function_name,
                None if launch.local_size is None else values.numbers(launch.local_size),
            )
            for launch in trace.commands
            if isinstance(launch, EnqueueKernel)
        }
        resources.rehearsals.ensure_sound(self.name, call.arguments, variants)

    def _values(self, trace: SavedTrace, rules: GuardSet, call: Call) -> Values | str:
        """Return the sizes for a call if a trace is valid for it, else a description of why it is not."""
        broken = ""
        # A trace is correct for any number of compute units, so if a guard on that number fails, try other numbers.
        for units in _units(call.compute_units, trace.compute_units):
            values = rules.values(Call(call.arguments, units))
            try:
                reason = self._mismatch(trace, values, call) or rules.broken(values)
            except ShapeError as error:
                reason = str(error)
            if reason is None:
                return values
            broken = reason
        return broken

    def _mismatch(self, trace: SavedTrace, values: Values, call: Call) -> str | None:
        """Return a description of the first argument with an unexpected shape; None if all shapes match."""
        for position, (shape, x) in enumerate(zip(trace.arguments, call.arguments, strict=True)):
            expected = values.numbers(shape)
            if expected != x.shape:
                return f"{self.signature.called(position)} of shape {expected}"
        return None

    def __repr__(self) -> str:
        return f"{self.name}{self.signature}"


def _units(there: int, traced: int) -> list[int]:
    """Return the numbers of compute units to try for a call, from the device's number to the trace's number."""
    units = [there]
    while units[-1] // 2 > traced:
        units.append(units[-1] // 2)
    while units[-1] * 2 < traced:
        units.append(units[-1] * 2)
    return list(dict.fromkeys([*units, traced]))
