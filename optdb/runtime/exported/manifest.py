"""Records for a file's manifest: shared values, programs, and functions with their traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.numpy_types import HostArray
from optdb.runtime.calling import Signature
from optdb.runtime.commands import CommandList, EnqueueKernel, EnqueueUpload, command_list
from optdb.runtime.deferred import SavedSource, lengths_in, source
from optdb.runtime.device_profiles import DEVICE_KINDS
from optdb.runtime.exported.archive import MAX_DIMENSIONS, Archive
from optdb.runtime.exported.rules import GuardSet
from optdb.runtime.exported.sources import SourceError, read_program
from optdb.runtime.expressions import Entry, Guard, Ref, Slot, entries, guards, memory_slot, numbers, size, sizes
from optdb.runtime.records import (
    Invalid,
    Members,
    Record,
    Where,
    array,
    checked,
    choice,
    dtype,
    flag,
    flags,
    index_in,
    list_of,
    maybe,
    one_of,
    saved,
    saved_values,
    text,
    to_json,
    within,
)


@dataclass(frozen=True, slots=True)
class SharedMemory(Record):
    """The memory that holds a shared value."""

    kind: ClassVar[str] = "shared"

    state: int = saved(index_in("states"))


@dataclass(frozen=True, slots=True, eq=False)
class ConstantMemory(Record):
    """Memory with values that never change."""

    kind: ClassVar[str] = "constant"

    array: HostArray = saved(array)


@dataclass(frozen=True, slots=True)
class Workspace(Record):
    """Memory for computed values."""

    kind: ClassVar[str] = "workspace"

    nbytes: int | Ref = saved(size)
    own_buffer: bool = saved(flag)  #: Whether the memory must start at offset 0 of a buffer.


@dataclass(frozen=True, slots=True)
class ArrayResult(Record):
    """An array on the device."""

    kind: ClassVar[str] = "array"

    dtype: str = saved(dtype)
    memory: Slot | None = saved(maybe(memory_slot))  #: The array's memory; None if the array has no elements.
    offset: int | Ref = saved(size)  #: The offset in bytes.
    shape: tuple[Any, ...] = saved(sizes)
    strides: tuple[Any, ...] = saved(sizes)

    def check(self, where: Where) -> None:
        if len(self.shape) > MAX_DIMENSIONS:
            raise where.at("shape").wrong(f"a list of at most {MAX_DIMENSIONS} lengths", self.shape)
        if len(self.strides) != len(self.shape):
            raise where.at("strides").wrong(f"a list of {len(self.shape)} strides", self.strides)


@dataclass(frozen=True, slots=True)
class NumbersResult(Record):
    """Numbers from the host: a vector, or one number as an array with `ndim` axes of length 1."""

    kind: ClassVar[str] = "numbers"

    dtype: str = saved(dtype)
    numbers: tuple[Any, ...] = saved(numbers)
    ndim: int = saved(within(range(MAX_DIMENSIONS + 1)))

    def check(self, where: Where) -> None:
        if self.ndim != 1 and len(self.numbers) != 1:
            raise where.at("numbers").wrong("a list of one number", self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.numbers),) if self.ndim == 1 else (1,) * self.ndim


@dataclass(frozen=True, slots=True, eq=False)
class ConstantResult(Record):
    """A constant array."""

    kind: ClassVar[str] = "constant"

    array: HostArray = saved(array)


@dataclass(frozen=True, slots=True, eq=False)
class HostResult(Record):
    """An array that the host computes from a source, without the device."""

    kind: ClassVar[str] = "host"

    value: SavedSource = saved(source)


MemorySpec = SharedMemory | ConstantMemory | Workspace
Result = ArrayResult | NumbersResult | ConstantResult | HostResult
memories = list_of(one_of(SharedMemory, ConstantMemory, Workspace), "memories", list)
results = list_of(one_of(ArrayResult, NumbersResult, ConstantResult, HostResult), "results", list)


#: The exclusive upper bound for a device's number of compute units.
_MOST_UNITS = 1 << 20

_identifier = checked(lambda value: isinstance(value, str) and value.isidentifier() and value.isascii(), "a name")


@dataclass(frozen=True)
class SharedValue(Record):
    """A shared value: its name, its initial value, and the axes whose length must be 1."""

    name: str = saved(text)
    value: HostArray = saved(array)
    broadcastable: tuple[bool, ...] = saved(flags)


@dataclass(frozen=True)
class ProgramSpec(Record):
    """A program's source, and the parameters of each of its kernels."""

    source: str = saved(lambda value, where: where.archive.text(value))
    kernels: Mapping[str, Sequence[str]] = saved(lambda value, where: value)

    @classmethod
    def parse(cls, value: Any, where: Where) -> ProgramSpec:
        spec = super().parse(value, where)
        name = value["source"]
        try:
            kernels = read_program(spec.source)
        except SourceError as error:
            cure = "Do not use it: no exported file has that"
            raise where.archive.wrong(f"has a program, {name}, that {error}", cure) from None
        if spec.kernels != {kernel: list(params) for kernel, params in kernels.items()}:
            raise where.at("kernels").wrong(f"the kernel parameters of {name}", spec.kernels)
        return cls(spec.source, kernels)

    def to_json(self, members: Members) -> dict[str, Any]:
        return {"source": members.text(self.source), "kernels": to_json(self.kernels, members)}


@dataclass(frozen=True)
class SavedTrace(Record):
    """A function's trace for one kind of device."""

    device_kind: str = saved(choice(DEVICE_KINDS))
    #: The number of compute units for which the function was traced.
    compute_units: int = saved(within(range(1, _MOST_UNITS)))
    dtypes: tuple[str, ...] = saved(list_of(dtype, "dtypes"))  #: The dtypes that the device must support.
    entries: list[Entry] = saved(entries)
    guards: list[Guard] = saved(guards)
    arguments: tuple[tuple[Any, ...], ...] = saved(list_of(sizes, "shapes"))
    memories: list[MemorySpec] = saved(memories)
    commands: CommandList = saved(command_list)
    results: list[Result] = saved(results)

    def check(self, where: Where) -> None:
        signature = where.before("signature")
        ndims = [len(argument.broadcastable) for argument in signature.arguments]
        if [len(shape) for shape in self.arguments] != ndims:
            raise where.at("arguments").wrong("the shapes of the signature's arguments", self.arguments)
        if signature.keys is not None and len(signature.keys) != len(self.results):
            raise where.at("results").wrong(f"a list of {len(signature.keys)} results", self.results)

    def rules(self, names: Sequence[str]) -> GuardSet:
        """Return the sizes and guards; error messages refer to the arguments by `names`."""
        return GuardSet(self.entries, self.guards, names)

    def deciding_sizes(self) -> Iterator[Any]:
        """Yield the numbers that determine sizes, omitting those that only determine kernel arguments or uploads."""
        for shape in self.arguments:
            yield from shape
        yield from (memory.nbytes for memory in self.memories if isinstance(memory, Workspace))
        for command in self.commands:
            if isinstance(command, EnqueueKernel):
                yield from (*command.global_size, *(command.local_size or ()))
                for slot in command.array_slots:
                    yield from command.args[slot + 1].values
            else:
                yield from saved_values(command)
            if isinstance(command, EnqueueUpload):
                yield from lengths_in(command.value)
        for result in self.results:
            if isinstance(result, ArrayResult):
                yield from (result.offset, *result.shape, *result.strides)
            elif isinstance(result, HostResult):
                yield from lengths_in(result.value)


@dataclass(frozen=True)
class Function(Record):
    """A function: its signature, and its traces for different shapes and kinds of devices."""

    name: str = saved(_identifier)
    signature: Signature = saved(Signature.parse)
    traces: Sequence[SavedTrace] = saved(list_of(SavedTrace.parse, "traces"))


@dataclass(frozen=True)
class Manifest(Record):
    """The content of a file; `about` names the program that created it."""

    about: str = saved(text)
    states: Sequence[SharedValue] = saved(list_of(SharedValue.parse, "shared values"))
    programs: Sequence[ProgramSpec] = saved(list_of(ProgramSpec.parse, "programs"))
    methods: Sequence[Function] = saved(list_of(Function.parse, "functions"))

    def check(self, where: Where) -> None:
        if not self.methods:
            raise where.archive.wrong("contains no function")
        _check_distinct(where, "programs with the same source", self.programs, lambda program: program.source)
        _check_distinct(where, "shared values with the same name", self.states, lambda state: state.name)
        _check_distinct(where, "functions with the same name", self.methods, lambda method: method.name)


def _check_distinct(where: Where, kind: str, records: Sequence[Any], key: Callable[[Any], str]) -> None:
    if len(set(map(key, records))) < len(records):
        raise where.archive.wrong(f"has two {kind}")


def read(archive: Archive) -> Manifest:
    """Parse and check a file's manifest; raise FileError if it is not valid."""
    try:
        return Manifest.parse(archive.manifest, Where(archive))
    except Invalid as error:
        error.keys.append("manifest")
        raise archive.wrong(f"is not valid: {error}") from None
    except RecursionError:
        raise archive.wrong("is not valid: its manifest is nested too deeply") from None
