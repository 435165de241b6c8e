"""The user's view of a file: functions and shared values on a device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optdb.collector import collector_paused
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import DeviceArray, from_host, to_host
from optdb.runtime.calling import Argument
from optdb.runtime.context import Context
from optdb.runtime.exported.archive import Archive
from optdb.runtime.exported.binding import Bound, Resources, buffer_with
from optdb.runtime.exported.limits import Budget, Limits
from optdb.runtime.exported.manifest import Manifest, SharedValue, read
from optdb.runtime.exported.methods import LoadedMethod
from optdb.runtime.exported.programs import Kernels
from optdb.runtime.exported.rehearsal import BUILD_TIMEOUT_S, Rehearsals, is_wanted
from optdb.runtime.library import cl
from optdb.unknown_names import UnknownName

#: The maximum number of shared values listed in a file's repr.
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
    """Load an exported file.

    Parameters
    ----------
    path : str or Path
        The file.
    device : str or Context
        The device: 'auto' selects the best working device; otherwise a spec as described in `optdb.runtime.devices`.
    max_host_bytes : int
        Maximum number of bytes of host memory for the file's content and for a call's uploads and results. A call's
        arguments are not counted.
    max_device_bytes : int
        Maximum number of bytes of device memory.
    max_work_items : int
        Maximum number of work items in the kernel launches of one call; copying 64 bytes counts as one work item.
    build_in_child : bool, optional
        Whether a call whose kernels have not been built on this machine first runs in a child process with limited time
        and memory, so that a crash or hang in the compiler does not affect the caller. By default, this is done on CPU
        devices, whose drivers run in the caller's process, unless the environment variable OPTDB_BUILD_IN_CHILD is 0.
    build_timeout_s : float
        Maximum time for a call in a child process, in seconds.

    Returns
    -------
    Exported
        The functions and shared values in the file.

    Raises
    ------
    FileError
        If the file is damaged, is not valid, has another version, or does not support this kind of device.
    LimitError
        If the file exceeds a limit. Calls of its functions can also raise this error.
    DeviceError
        If there is no such device, or if it does not work.
    OSError
        If the file cannot be read.
    """
    limits = Limits(max_host_bytes, max_device_bytes, max_work_items)
    # The garbage collector would traverse the file's many values several times without freeing any.
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
        budget: Budget[Bound] = Budget(limits, archive.host_bytes)
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
            The results, in the form in which the exported function returns them.

        Raises
        ------
        Exception
            The same errors as a call of a :class:`LoadedMethod`.
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
        # Check before acquiring the lock, which may never be released in a fork.
        self.context.check_process()
        with self._resources.lock:
            return to_host(self._shared(name).array)

    def set(self, name: str, value: Any) -> None:
        """Set a shared value to another value with the same shape.

        Parameters
        ----------
        name : str
            The shared value's name, one of `names`.
        value : array-like
            The new value. Its shape must be the same, and its dtype must convert to the shared value's dtype without
            loss.

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
        """Numbers of bytes on the device: for shared values, for constants, and for each function's values."""
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
    """A shared value on the device, which is C-contiguous and has its own buffer."""

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
