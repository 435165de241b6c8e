"""The user's view of a file: functions and shared values on a device.

A call runs a trace whose guards hold. Memory is allocated once for each set of sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from optdb.collector import collector_paused
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import DeviceArray, from_host, to_host
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.errors import FileError, ShapeError
from optdb.runtime.exported.archive import Archive, Limits
from optdb.runtime.exported.binding import Bound, Budget, Resources, buffer_with
from optdb.runtime.exported.manifest import Function, Manifest, SavedTrace, SharedValue, read
from optdb.runtime.exported.programs import Kernels
from optdb.runtime.exported.rehearsal import BUILD_TIMEOUT_S, Rehearsals, is_wanted
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.library import cl
from optdb.unknown_names import UnknownName

#: The maximum number of failed guards or shared values that an error message lists.
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
        deciders = frozenset().union(*(rules.arguments_behind(trace.deciding_sizes()) for trace, rules in self._traces))
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
        """The number of device bytes that the function's values take, summed over all cached sizes."""
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
            The results, in the same form as the exported function's results.

        Raises
        ------
        TypeError
            If the arguments do not match the signature.
        Exception
            The same errors as `run`.
        """
        return self.run(self.signature.bind(args, kwargs, self.name))

    def run(self, arguments: Sequence[HostArray]) -> Any:
        """Call the function with arrays that have already been converted.

        Parameters
        ----------
        arguments : sequence of numpy.ndarray
            An array for each argument in ``signature``, with that argument's dtype and number of dimensions.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, in the same form as the exported function's results.

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
        """Allocate memory and compile kernels for calls with these sizes, so that such calls need not wait for either.

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
        """Call `what`, holding the file's lock; errors name the function and the file."""
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
        # If the cache is full, evict a trace before the next trace allocates memory.
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
        """Return the sizes for a call if a trace is valid for it, else the reason why the trace is not valid."""
        broken = ""
        # If a guard on the number of compute units fails, try other numbers: all of them give correct results.
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
        for position, (shape, x) in enumerate(zip(trace.arguments, call.arguments, strict=True)):
            expected = values.numbers(shape)
            if expected != x.shape:
                return f"{self.signature.called(position)} of shape {expected}"
        return None

    def __repr__(self) -> str:
        return f"{self.name}{self.signature}"


def _units(there: int, traced: int) -> list[int]:
    """Return the numbers of compute units to try, from the device's number to the trace's number."""
    units = [there]
    while units[-1] // 2 > traced:
        units.append(units[-1] // 2)
    while units[-1] * 2 < traced:
        units.append(units[-1] * 2)
    return list(dict.fromkeys([*units, traced]))


def load(
    path: str | Path,
    device: str | Context = "auto",
    *,
    max_host_bytes: int = Limits.max_host_bytes,
    max_device_bytes: int = Limits.max_device_bytes,
    max_work_items: int = Limits.max_work_items,
    build_in_child: bool | None = None,
    build_timeout_s: float = BUILD_TIMEOUT_S,
) -> Exported:
    """Load an exported file.

    Parameters
    ----------
    path : str or Path
        The file.
    device : str or Context
        The device: 'auto' selects the best working device; otherwise a spec as described in `optdb.runtime.devices`.
    max_host_bytes : int
        The maximum number of bytes of host memory for the file's content and for a call's uploads and results, not
        counting the call's arguments.
    max_device_bytes : int
        Maximum number of bytes of device memory.
    max_work_items : int
        Maximum number of work items in the kernel launches of one call; copying 64 bytes counts as one work item.
    build_in_child : bool, optional
        Whether a call first runs in a child process with limited time and memory if it uses kernels that this machine
        has not built yet. A crash or hang in the compiler then does not affect the caller. The default is True for CPU
        devices, whose drivers run in the caller's process, unless the environment variable OPTDB_BUILD_IN_CHILD is 0.
    build_timeout_s : float
        The maximum time for a call in a child process, in seconds.

    Returns
    -------
    Exported
        The functions and shared values in the file.

    Raises
    ------
    FileError
        If the file is damaged, is not valid, is from another version of the format, or does not support this kind of
        device.
    LimitError
        If the file exceeds a limit. Calls to the file's functions can also raise this error.
    DeviceError
        If there is no such device, or if it does not work.
    OSError
        If the file cannot be read.
    """
    limits = Limits(max_host_bytes, max_device_bytes, max_work_items)
    # The garbage collector would traverse the file's many values without freeing any.
    with collector_paused():
        archive = Archive(Path(path), limits)
        manifest = read(archive)
    context = device if isinstance(device, Context) else Context("opencl" if device == "auto" else device)
    rehearsals = None
    if is_wanted(build_in_child, context):
        rehearsals = Rehearsals(archive.path, archive.digest, context, limits, build_timeout_s)
    return Exported(archive, context, manifest, limits, rehearsals)


class Exported:
    """The functions in a file and their shared values.

    Calling the object calls the first function. Each function is available as an attribute and as an item of `methods`.

    Attributes
    ----------
    methods : dict
        Maps names to functions.
    context : Context
        The context of the functions' device.
    digest : str
        The SHA-256 of the file's manifest.
    """

    def __init__(
        self, archive: Archive, context: Context, manifest: Manifest, limits: Limits, rehearsals: Rehearsals | None
    ) -> None:
        self._path = archive.path
        self.digest = archive.digest
        self.context = context
        budget = Budget(limits, archive.host_bytes)
        for state in manifest.states:
            budget.keep_on_device(state.value.nbytes, f"{archive.path} with its shared values")
        self._states = {state.name: _Shared(archive, state, context) for state in manifest.states}
        kernels = Kernels(context, manifest.programs, str(archive.path))
        buffers = [state.array.base_data for state in self._states.values()]
        self._resources = Resources(archive, context, kernels, buffers, budget, rehearsals)
        self.methods = {method.name: LoadedMethod(method, self._resources) for method in manifest.methods}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the first function.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments, with the dtypes and numbers of dimensions that ``signature`` shows.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, in the same form as the exported function's results.

        Raises
        ------
        Exception
            The same errors as calling a :class:`LoadedMethod`.
        """
        return next(iter(self.methods.values()))(*args, **kwargs)

    def __getattr__(self, name: str) -> LoadedMethod:
        methods: dict[str, LoadedMethod] = self.__dict__.get("methods", {})
        if name not in methods:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}, and no function of that name")
        return methods[name]

    def __getitem__(self, name: str) -> LoadedMethod:
        return self.methods[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.methods)

    @property
    def names(self) -> list[str]:
        """The names of the shared values."""
        return list(self._states)

    def get(self, name: str) -> HostArray:
        """Return a copy of a shared value.

        Parameters
        ----------
        name : str
            The shared value's name, one of `names`.

        Returns
        -------
        numpy.ndarray
            An array with the value's shape and dtype.

        Raises
        ------
        KeyError
            If there is no shared value with that name.
        ForkedContext
            If this process is a fork of the process that loaded the file.
        """
        # Check for a fork before acquiring the lock, which may never be released in a fork.
        self.context.check_process()
        with self._resources.lock:
            return to_host(self._shared(name).array)

    def set(self, name: str, value: Any) -> None:
        """Set a shared value; the shape must not change.

        Parameters
        ----------
        name : str
            The shared value's name, one of `names`.
        value : array-like
            The new value. Its dtype must convert to the shared value's dtype without loss.

        Raises
        ------
        KeyError
            If there is no shared value with that name.
        TypeError, ValueError
            If the new value or its shape is not allowed.
        ForkedContext
            If this process is a fork of the process that loaded the file.
        """
        self.context.check_process()
        with self._resources.lock:
            self._shared(name).set(value)

    def _shared(self, name: str) -> _Shared:
        if name not in self._states:
            raise UnknownName(f"{self._path} has no shared value {name!r}; it has {', '.join(self._states) or 'none'}")
        return self._states[name]

    @property
    def nbytes(self) -> dict[str, int]:
        """The number of bytes on the device for shared values, for constants, and for each function's values."""
        sizes = {
            "shared": sum(state.array.nbytes for state in self._states.values()),
            "constants": sum(buffer.size for buffer in self._resources.constants.values()),
        }
        return sizes | {name: method.nbytes for name, method in self.methods.items()}

    def __repr__(self) -> str:
        lines = [f"{name}{method.signature}" for name, method in self.methods.items()]
        shared = [f"{name} {list(state.array.shape)}" for name, state in self._states.items()]
        if len(shared) > _NAMED:
            shared[_NAMED:] = [f"and {len(shared) - _NAMED} others"]
        device = self.context.profile.name
        return f"Exported({str(self._path)!r} on {device}: {'; '.join(lines)}; shared: {', '.join(shared) or 'none'})"


class _Shared:
    """A shared value on the device, stored as a C-contiguous array in its own buffer."""

    def __init__(self, archive: Archive, spec: SharedValue, context: Context) -> None:
        value = spec.value
        if len(spec.broadcastable) != value.ndim:
            raise archive.wrong(f"is not valid: the shared value {spec.name} has {value.ndim} dimensions")
        reason = context.unsupported_reason(value.dtype)
        if reason is not None:
            raise archive.wrong(
                f"has a shared value of {value.dtype}, {spec.name}: {reason}", "The cure: name another device"
            )
        self._context = context
        self._kind = Argument(spec.name, value.dtype.name, spec.broadcastable)
        try:
            self.array = DeviceArray(context.queue, value.shape, value.dtype, data=buffer_with(context, value))
        except (cl.MemoryError, cl.LogicError) as error:
            raise MemoryError(
                f"the device cannot allocate the {value.nbytes:,} bytes of {spec.name} in {archive.path}: {error}"
            ) from error

    def set(self, value: Any) -> None:
        taken, shape = self._kind.array(value), self.array.shape
        if taken.shape != shape:
            raise ValueError(
                f"the shared value {self._kind.name} has the fixed shape {shape}, and cannot be set to {taken.shape}"
            )
        from_host(self._context, taken, out=self.array)
