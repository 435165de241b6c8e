"""Reads a manifest: methods, their traces, and the commands of these, each field checked.

Numbers of commands may be entries of the trace's rules: `binding` computes these, and checks the results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.runtime.calling import RESULTS, Argument, Signature
from optdb.runtime.device_profiles import DEVICE_KINDS
from optdb.runtime.exported.archive import Archive
from optdb.runtime.exported.fields import (
    Fields,
    is_dtype,
    is_flag,
    is_index,
    is_list,
    is_number,
    is_text,
    is_whole,
)
from optdb.runtime.exported.rules import GuardSet
from optdb.runtime.exported.sources import LONG16, POINTERS, SourceError, argument_nbytes, read_program
from optdb.runtime.sizes import ARITHMETIC, COMPARISONS
from optdb.runtime.tables import HOST_SCALAR_OPS, TABLES

#: Compute units of a device are fewer.
_MOST_UNITS = 1 << 20
#: A result has no more axes.
_MOST_DIMENSIONS = 32

_PATTERN = re.compile(r"([0-9a-f]{2}|[0-9a-f]{4}|[0-9a-f]{8}|[0-9a-f]{16}|[0-9a-f]{32})\Z", re.ASCII)


@dataclass(frozen=True)
class SharedValue:
    """A shared value: its name, its first value, and for each axis, whether its length is 1."""

    name: str
    value: np.ndarray
    broadcastable: tuple[bool, ...]


@dataclass(frozen=True)
class Function:
    """A function, its signature, and its traces, for some shapes and devices."""

    name: str
    signature: Signature
    traces: Sequence[Any]


@dataclass(frozen=True)
class MemorySpec:
    """A memory of a trace: a shared value, constants, or bytes of workspace."""

    state: int | None = None
    array: str | None = None
    nbytes: Any = None
    bare: bool = False


@dataclass(frozen=True)
class FileTrace:
    """A method's trace for one kind of device; commands and outputs are as in the manifest, and checked."""

    device_kind: str
    compute_units: int
    flags: tuple[str, ...]
    rules: GuardSet
    arguments: list[list[Any]]
    memories: list[MemorySpec]
    commands: list[list[Any]]
    outputs: list[dict[str, Any]]


def deciding(trace: FileTrace) -> frozenset[int]:
    """Return the arguments whose values determine more than kernel arguments and uploads."""
    operands = [memory.nbytes for memory in trace.memories]
    for shape in trace.arguments:
        operands += shape
    for command in trace.commands:
        match command:
            case ["launch", _, _, items, group, args, arrays]:
                operands += [*items, *(group or ()), *(arg for place in arrays for arg in args[place + 1][2])]
            case ["upload", _, offset, source]:
                operands += [offset, *_lengths(source)]
            case [_, *parts]:
                operands += parts
    for output in trace.outputs:
        operands += [*output.get("shape", ()), *output.get("strides", ()), output.get("offset")]
        operands += _lengths(output.get("source"))
    return trace.rules.arguments_behind(operands)


def _lengths(source: Any) -> list[Any]:
    """Return the lengths that a source is given, in itself and in others within it."""
    match source:
        case ["shaped", inner, shape]:
            return [*shape, *_lengths(inner)]
        case ["table", _, [inner, *numbers]]:
            return [*numbers, *_lengths(inner)]
    return []


@dataclass(frozen=True)
class ProgramSpec:
    """The source of a program, and the parameters of each of its kernels."""

    source: str
    kernels: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Manifest:
    """A checked manifest: shared values, programs and functions."""

    states: list[SharedValue]
    programs: list[ProgramSpec]
    methods: list[Function]


def read(archive: Archive) -> Manifest:
    """Return a file's checked manifest; raise FileError if it is not valid."""
    try:
        return _manifest(archive)
    except RecursionError:
        raise archive.wrong("is not valid: what it says is nested too deeply") from None


def _manifest(archive: Archive) -> Manifest:
    top = Fields(archive, archive.manifest, "manifest")
    states = [
        SharedValue(fields.text("name"), archive.array(fields.text("array")), fields.flags("broadcastable"))
        for fields in top.objects("states")
    ]
    programs = [_program(archive, fields) for fields in top.objects("programs")]
    _check_distinct(archive, "programs of one source", [fields.text("source") for fields in top.objects("programs")])
    methods = [_method(archive, fields, len(states), programs) for fields in top.objects("methods")]
    if not methods:
        raise archive.wrong("has no function in it")
    _check_distinct(archive, "shared values of one name", [state.name for state in states])
    _check_distinct(archive, "functions of one name", [method.name for method in methods])
    top.text("about")
    return Manifest(states, programs, methods)


def _check_distinct(archive: Archive, kind: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise archive.wrong(f"has two {kind}")


def _program(archive: Archive, fields: Fields) -> ProgramSpec:
    """Return a program, whose text is in the form that a file's have, and whose table is what it says itself."""
    name = fields.text("source")
    source = archive.text(name)
    try:
        kernels = read_program(source)
    except SourceError as error:
        raise archive.wrong(f"has a program, {name}, that {error}", "Do not use it: no plan has that") from None
    if fields.object("kernels").value != {kernel: list(params) for kernel, params in kernels.items()}:
        raise archive.wrong(f"is not valid: {fields.where}.kernels is not what the kernels of {name} take")
    return ProgramSpec(source, kernels)


def _method(archive: Archive, fields: Fields, states: int, programs: list[ProgramSpec]) -> Function:
    """Return a function over a number of shared values."""
    name = fields.take("name", lambda x: is_text(x) and x.isidentifier() and x.isascii(), "a name")
    said = fields.object("signature")
    arguments = tuple(_argument(archive, argument) for argument in said.objects("arguments"))
    signature = Signature(arguments, said.choice("returns", RESULTS), said.maybe(said.texts, "keys"))
    return Function(name, signature, [_trace(trace, signature, states, programs) for trace in fields.objects("traces")])


def _argument(archive: Archive, fields: Fields) -> Argument:
    default = fields.maybe(fields.text, "default")
    argument = Argument(
        fields.maybe(fields.text, "name"),
        fields.take("dtype", is_dtype, "a dtype"),
        fields.flags("broadcastable"),
        fields.flag("strict"),
        fields.maybe(fields.flag, "allow_downcast"),
        None if default is None else archive.array(default),
        fields.flag("floats"),
    )
    if argument.default is not None:
        if argument.default.dtype != argument.dtype:
            raise archive.wrong(f"is not valid: {fields.where}.default is not of {argument.dtype}")
        try:
            argument.array(argument.default)
        except TypeError as error:
            raise archive.wrong(f"is not valid: {fields.where}.default: {error}") from None
    return argument


def _trace(fields: Fields, signature: Signature, states: int, programs: list[ProgramSpec]) -> FileTrace:
    names = [argument.name or f"argument {i}" for i, argument in enumerate(signature.arguments)]
    ndims = [len(argument.broadcastable) for argument in signature.arguments]
    entries = fields.take("entries", is_list, "a list")
    for number, entry in enumerate(entries):
        if not _is_entry(entry, number, ndims):
            raise fields.wrong(f"entries[{number}]", "worked out from arguments, numbers and entries before", entry)
    memories = fields.objects("memories")
    checks = _Checks(len(memories), programs, len(ndims), len(entries))
    shapes = fields.list("arguments", checks.are_numbers, "shapes of whole numbers and entries that there are")
    if [len(shape) for shape in shapes] != ndims:
        raise fields.wrong("arguments", "as many shapes as there are arguments", shapes)
    outputs = fields.list("outlets", checks.is_output, "results")
    if signature.keys is not None and len(signature.keys) != len(outputs):
        raise fields.wrong("outlets", "as many as there are keys", outputs)
    return FileTrace(
        fields.choice("flavour", DEVICE_KINDS),
        fields.whole("units", range(1, _MOST_UNITS)),
        tuple(fields.list("flags", is_dtype, "dtypes")),
        GuardSet(entries, fields.list("guards", checks.is_guard, "guards"), names),
        shapes,
        [_memory(memory, states, checks) for memory in memories],
        fields.list("commands", checks.is_command, "commands"),
        outputs,
    )


def _memory(fields: Fields, states: int, checks: _Checks) -> MemorySpec:
    if "state" in fields.value:
        return MemorySpec(state=fields.whole("state", range(states)))
    if "array" in fields.value:
        return MemorySpec(array=fields.text("array"), bare=fields.flag("bare"))
    nbytes = fields.take("nbytes", checks.is_number, "a whole number or an entry that there is")
    return MemorySpec(nbytes=nbytes, bare=fields.flag("bare"))


@dataclass(frozen=True)
class _Checks:
    """Tells which commands and results are valid in a trace, by how many there are of what they name."""

    memories: int
    programs: list[ProgramSpec]
    arguments: int
    entries: int

    def is_command(self, command: Any) -> bool:
        """Tell whether a value is a command."""
        match command:
            case ["launch", program, name, items, group, args, arrays]:
                return self._is_launch(program, name, items, group, args, arrays)
            case ["copy", target, target_offset, source, source_offset, nbytes]:
                memories = self._is_memory(target) and self._is_memory(source)
                return memories and self.are_numbers([target_offset, source_offset, nbytes])
            case ["fill", target, offset, nbytes, str(pattern)]:
                numbers = self._is_memory(target) and self.are_numbers([offset, nbytes])
                return numbers and _PATTERN.match(pattern) is not None
            case ["upload", target, offset, source]:
                return self._is_memory(target) and self.is_number(offset) and self._is_source(source)
        return False

    def _is_launch(self, program: Any, name: Any, items: Any, group: Any, args: Any, arrays: Any) -> bool:
        if not (is_index(program, len(self.programs)) and is_text(name)):
            return False
        params = self.programs[program].kernels.get(name)
        if params is None or not is_list(args) or not is_list(arrays):
            return False
        if not (self.are_numbers(items) and 1 <= len(items) <= 3):
            return False
        if group is not None and not (self.are_numbers(group) and len(group) == len(items)):
            return False
        if len(args) != len(params) or not all(map(self._is_argument, args, params)):
            return False
        return all(_is_array(place, args) for place in arrays) and len(set(arrays)) == len(arrays)

    def _is_argument(self, arg: Any, param: str) -> bool:
        """Tell whether a value says what a kernel is given for a parameter of a kind."""
        match arg:
            case None:
                return param in ("global", "constant")
            case ["memory", memory]:
                return self._is_memory(memory) and param in ("global", "constant")
            case ["local", nbytes]:
                return is_whole(nbytes) and nbytes > 0 and param == "local"
            case ["number", dtype, [*values]] if is_dtype(dtype) or dtype == LONG16:
                if param in POINTERS or argument_nbytes(dtype) != argument_nbytes(param):
                    return False
                return len(values) == (16 if dtype == LONG16 else 1) and all(map(self._is_value, values))
        return False

    def _is_source(self, source: Any) -> bool:
        """Tell whether a value says what is uploaded."""
        match source:
            case ["argument", number]:
                return is_index(number, self.arguments)
            case ["array", name]:
                return is_text(name)
            case ["value", dtype, [*values]]:
                return is_dtype(dtype) and all(map(self._is_value, values))
            case ["shaped", inner, shape]:
                return self._is_source(inner) and self.are_numbers(shape)
            case ["table", str(name), [inner, *numbers]] if name in TABLES:
                # It is made of an array and as many numbers as it takes.
                count = TABLES[name][0].__code__.co_argcount
                return 1 + len(numbers) == count and self._is_source(inner) and self.are_numbers(numbers)
        return False

    def is_output(self, output: Any) -> bool:
        """Tell whether a value says what a result is."""
        if not isinstance(output, dict) or not is_dtype(output.get("dtype")):
            return False
        match output:
            case {"values": values}:
                ndim, vector = output.get("ndim", 0), output.get("vector")
                if not (is_list(values) and all(map(self._is_value, values)) and is_flag(vector)):
                    return False
                return is_index(ndim, _MOST_DIMENSIONS + 1) and (vector or len(values) == 1)
            case {"array": name}:
                return is_text(name)
            case {"source": source}:
                return self._is_source(source)
            case {"shape": shape, "strides": strides, "offset": offset}:
                if not (self.are_numbers(shape) and self.are_numbers(strides) and self.is_number(offset)):
                    return False
                memory = output.get("memory")
                is_known = memory is None or self._is_memory(memory)
                return is_known and len(shape) == len(strides) <= _MOST_DIMENSIONS
        return False

    def is_guard(self, guard: Any) -> bool:
        """Tell whether a value compares two numbers."""
        match guard:
            case [str(word), left, right] if word in COMPARISONS:
                return self._is_value(left) and self._is_value(right)
        return False

    def is_number(self, x: Any) -> bool:
        """Tell whether a value is a whole number, or an entry that there is."""
        return is_number(x, self.entries)

    def are_numbers(self, x: Any) -> bool:
        """Tell whether a value is a list of such numbers."""
        return is_list(x) and all(map(self.is_number, x))

    def _is_memory(self, x: Any) -> bool:
        return is_index(x, self.memories)

    def _is_value(self, x: Any) -> bool:
        return _is_value(x, self.entries)


def _is_entry(entry: Any, number: int, ndims: Sequence[int]) -> bool:
    """Tell whether a value says how to work out the entry of a number, from arguments and the entries before it."""
    match entry:
        case ["units"]:
            return True
        case ["axis", argument, axis]:
            return is_index(argument, len(ndims)) and is_index(axis, ndims[argument])
        case ["value", argument]:
            return is_index(argument, len(ndims)) and not ndims[argument]
        case [str(word), dtype, *operands] if word in HOST_SCALAR_OPS and is_dtype(dtype):
            return len(operands) in (1, 2) and all(_is_value(x, number) for x in operands)
        case [str(word), left, right] if word in ARITHMETIC:
            return is_number(left, number) and is_number(right, number)
    return False


def _is_value(x: Any, entries: int) -> bool:
    """Tell whether something is a number of any kind, or one of the entries; infinity is written as a text."""
    return isinstance(x, float | bool) or x in ("inf", "-inf", "nan") or is_number(x, entries)


def _is_array(place: Any, args: list[Any]) -> bool:
    """Tell whether a buffer stands at a place, followed by the offset at which an array begins in it."""
    if not is_index(place, len(args) - 1):
        return False
    memory, offset = args[place : place + 2]
    return (memory is None or memory[0] == "memory") and offset is not None and offset[:2] == ["number", "uint64"]
