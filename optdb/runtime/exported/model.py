"""The user's view of a file: functions over shared values, on a device.

`load` reads a file and puts its shared values on a device. A call of a :class:`LoadedMethod` finds the trace that holds
for its arguments, gives it memory once for each size of them, and runs it.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from optdb.runtime.arrays import DeviceArray, from_host, to_host
from optdb.runtime.calling import Argument, Signature
from optdb.runtime.commands import EnqueueKernel
from optdb.runtime.context import Context
from optdb.runtime.exported.archive import Archive
from optdb.runtime.exported.binding import Bound, Resources, buffer_with
from optdb.runtime.exported.errors import FileError, ShapeError
from optdb.runtime.exported.limits import Budget, Limits
from optdb.runtime.exported.manifest import Function, Manifest, SavedTrace, SharedValue, read
from optdb.runtime.exported.programs import Kernels
from optdb.runtime.exported.rehearsal import BUILD_TIMEOUT_S, Rehearsals, is_wanted
from optdb.runtime.exported.rules import Call, GuardSet, Values
from optdb.runtime.library import cl

#: The most shared values that the text of a file names, and the most broken rules that an error names.
_NAMED = 8


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
    """Load a file that was exported.

    Parameters
    ----------
    path : str or Path
        The file.
    device : str or Context
        Where to run it: 'auto' for the best device that works, or what `optdb.runtime.devices` takes.
    max_host_bytes : int
        How many bytes of the host's memory the file may take: for what it holds, and for what a call uploads and
        returns. The arguments of a call do not count.
    max_device_bytes : int
        How many bytes of the device's memory it may take.
    max_work_items : int
        How many work items the kernel launches of one call may have; 64 bytes that are copied count as one.
    build_in_child : bool, optional
        Whether a call with kernels that this machine has not yet built is first done in a child process, with limits
        of time and memory, so that a compiler that crashes or hangs does so there. By default, it is on devices whose
        driver works in the caller's process, which are processors, unless the environment variable
        OPTDB_BUILD_IN_CHILD is 0.
    build_timeout_s : float
        How many seconds such a call may take.

    Returns
    -------
    Exported
        The functions and the shared values in it.

    Raises
    ------
    FileError
        If the file is damaged, not valid, of another version, or not for such a device.
    LimitError
        If it takes more than it may; so do calls of its functions.
    DeviceError
        If there is no such device, or it does not work.
    OSError
        If the file cannot be read.
    """
    limits = Limits(max_host_bytes, max_device_bytes, max_work_items)
    with _collector_paused():
        archive = Archive(Path(path), limits)
        manifest = read(archive)
    context = device if isinstance(device, Context) else Context("opencl" if device == "auto" else device)
    rehearsals = None
    if is_wanted(build_in_child, context):
        rehearsals = Rehearsals(archive.path, archive.digest, context, limits, build_timeout_s)
    return Exported(archive, context, manifest, limits, rehearsals)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's cyclic collector off: it would walk the very many values of a file several times, and free none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Exported:
    """The functions of a file, and the shared values that they work on.

    A call calls the first function; each is an attribute by its name, too, and an item of `methods`.

    Attributes
    ----------
    methods : dict
        The functions, by name.
    context : Context
        Where they run.
    digest : str
        The SHA-256 of what the file says.
    """

    def __init__(
        self, archive: Archive, context: Context, manifest: Manifest, limits: Limits, rehearsals: Rehearsals | None
    ) -> None:
        self._path = archive.path
        self.digest = archive.digest
        self.context = context
        budget = Budget(limits, archive.host_bytes)
        for state in manifest.states:
            budget.keep_on_device(state.value.nbytes, f"{archive.path}, with its shared values,")
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
            The results, as the exported function returns them.

        Raises
        ------
        Exception
            As a call of a :class:`LoadedMethod` does.
        """
        return next(iter(self.methods.values()))(*args, **kwargs)

    def __getattr__(self, name: str) -> LoadedMethod:
        methods = self.__dict__.get("methods", {})
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

    def get(self, name: str) -> np.ndarray:
        """Return a copy of a shared value.

        Parameters
        ----------
        name : str
            Its name, one of `names`.

        Returns
        -------
        numpy.ndarray
            An array of the value's shape and dtype.

        Raises
        ------
        KeyError
            If there is none of that name.
        ForkedContext
            In the child of the process that loaded the file.
        """
        # Ahead of the lock, which another thread of the parent may hold for good.
        self.context.check_process()
        with self._resources.lock:
            return to_host(self._shared(name).array)

    def set(self, name: str, value: Any) -> None:
        """Give a shared value another value, of the same shape.

        Parameters
        ----------
        name : str
            Its name, one of `names`.
        value : array-like
            The value, of the same shape and of a dtype that converts to the value's own without loss.

        Raises
        ------
        KeyError
            If there is none of that name.
        TypeError, ValueError
            If it cannot have that value, or one of that shape.
        ForkedContext
            In the child of the process that loaded the file.
        """
        self.context.check_process()
        with self._resources.lock:
            self._shared(name).set(value)

    def _shared(self, name: str) -> _Shared:
        if name not in self._states:
            raise KeyError(
                f"there is no shared value {name!r} in {self._path}; there is {', '.join(self._states) or 'none'}"
            )
        return self._states[name]

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes on the device: of shared values, of constants, and for the values of each function."""
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


class LoadedMethod:
    """A function of a file.

    Attributes
    ----------
    name : str
        Of it.
    signature : Signature
        How it is called.
    """

    def __init__(self, spec: Function, resources: Resources) -> None:
        self.name = spec.name
        self.signature: Signature = spec.signature
        self._resources = resources
        self._path = resources.archive.path
        names = [argument.name or f"argument {i}" for i, argument in enumerate(self.signature.arguments)]
        #: Each with its sizes and guards.
        self._traces = [(trace, trace.rules(names)) for trace in self._suitable(spec)]
        deciders = frozenset().union(*(trace.deciding(rules) for trace, rules in self._traces))
        self._deciding = sorted(deciders)
        self._free = frozenset(range(len(self.signature.arguments))) - deciders

    def _suitable(self, spec: Function) -> list[SavedTrace]:
        """Return the traces for the device."""
        context = self._resources.context
        device = context.profile.name
        traces = [trace for trace in spec.traces if trace.device_kind == context.profile.device_kind]
        if not traces:
            kinds = sorted({trace.device_kind for trace in spec.traces})
            raise FileError(
                f"{self._path} has {spec.name} for devices of kind {', '.join(kinds) or 'none'}, and {device} is of "
                f"kind {context.profile.device_kind}.\nThe cure: name another device, or export with "
                "device_kinds=('cpu', 'gpu')"
            )
        for dtype in sorted({dtype for trace in traces for dtype in trace.dtypes}):
            reason = context.unsupported_reason(dtype)
            if reason is not None:
                raise FileError(
                    f"{spec.name} of {self._path} needs {dtype}, and {reason}.\nThe cure: name another device"
                )
        return traces

    @property
    def nbytes(self) -> int:
        """How many bytes its values take, for all sizes of arguments that are remembered."""
        return sum(bound.nbytes for bound in self._resources.budget.of_method(self.name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute, as the function did that was exported.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments, with the dtypes and numbers of dimensions that ``signature`` shows.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, as the exported function returns them.

        Raises
        ------
        TypeError
            If the arguments are not those that it takes.
        ShapeError
            If the file does not say what to do with such shapes.
        LimitError
            If the call takes more than `load` allowed.
        MemoryError
            If the device has too little memory.
        ForkedContext
            In the child of the process that loaded the file.
        """
        return self.run(self.signature.bind(args, kwargs, self.name))

    def run(self, arguments: Sequence[np.ndarray]) -> Any:
        """Compute for arrays that are bound to the arguments already.

        Parameters
        ----------
        arguments : sequence of numpy.ndarray
            An array for each argument of ``signature``, with its dtype and number of dimensions.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, as the exported function returns them.

        Raises
        ------
        ShapeError
            If the file does not say what to do with such shapes.
        LimitError
            If the call takes more than `load` allowed.
        MemoryError
            If the device has too little memory.
        ForkedContext
            In the child of the process that loaded the file.
        """
        return self._do(lambda call: self.signature.result(self._bound_for(call).run(call)), arguments)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Prepare calls like one, which then need not wait for memory and compilers; compute nothing.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments, with the dtypes and numbers of dimensions that ``signature`` shows.

        Raises
        ------
        Exception
            As a call does.
        """
        self._do(self._bound_for, self.signature.bind(args, kwargs, self.name))

    def _do(self, what: Callable[[Call], Any], arguments: Sequence[np.ndarray]) -> Any:
        """Do something for a call, with errors that name the function and the file."""
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
                raise FileError(f"{self.name} of {self._path}: the device does not take it ({error})") from error

    def _bound_for(self, call: Call) -> Bound:
        sizes = (*(x.shape for x in call.arguments), *(call.arguments[position].item() for position in self._deciding))
        budget = self._resources.budget
        for number in range(len(self._traces)):
            bound = budget.get(self.name, (number, sizes))
            if bound is not None and bound.suits(call):
                return bound
        # Evict before the next one allocates: memory may be short.
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
        rules = "".join(f"\n    {reason}" for reason in itertools.islice(broken, _NAMED))
        if len(broken) > _NAMED:
            rules += f"\n    or {len(broken) - _NAMED} others"
        raise ShapeError(
            f"{self.name} of {self._path} was not exported for {shapes}. What it was exported for asks for{rules}\n"
            "The cure: export it with an example of such arguments, too"
        )

    def _rehearse(self, trace: SavedTrace, values: Values, call: Call) -> None:
        """Have the call done in a child process, if kernels of it are to be built for the first time."""
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
        """Return the sizes of a call if a trace holds for it, or else why it does not, in words."""
        broken = ""
        # A trace is right for any number of units. So a call never fails by a guard on units.
        for units in _units(call.compute_units, trace.compute_units):
            values = rules.values(Call(call.arguments, units))
            try:
                broken = self._mismatch(trace, values, call) or rules.broken(values)
            except ShapeError as error:
                broken = str(error)
            if broken is None:
                return values
        return broken

    def _mismatch(self, trace: SavedTrace, values: Values, call: Call) -> str | None:
        """Return which length is not the one that a trace was made for, in words."""
        for position, (shape, x) in enumerate(zip(trace.arguments, call.arguments, strict=True)):
            expected = values.numbers(shape)
            if expected != x.shape:
                return f"{self.signature.called(position)} of shape {expected}"
        return None

    def __repr__(self) -> str:
        return f"{self.name}{self.signature}"


def _units(there: int, traced: int) -> list[int]:
    """Return over how many compute units a call's work may be spread: as many as there are, or closer to a trace's."""
    units = [there]
    while units[-1] // 2 > traced:
        units.append(units[-1] // 2)
    while units[-1] * 2 < traced:
        units.append(units[-1] * 2)
    return list(dict.fromkeys([*units, traced]))


class _Shared:
    """A shared value on the device, in C order in a buffer of its own."""

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
                f"the device has no room for {spec.name}, {value.nbytes:,} bytes, of {archive.path}: {error}"
            ) from error

    def set(self, value: Any) -> None:
        """Set the value."""
        taken, shape = self._kind.array(value), self.array.shape
        if taken.shape != shape:
            raise ValueError(
                f"the shared value {self._kind.name} has the shape {shape} for good, and cannot get {taken.shape}"
            )
        from_host(self._context, taken, out=self.array)
