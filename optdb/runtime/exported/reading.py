"""Reads what a file says: methods, their traces, and the commands of these, each field checked.

Numbers of commands may be entries of the trace's rules: these are worked out, and the results checked, in `binding`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optdb.runtime.calling import RESULTS, Argument, Signature
from optdb.runtime.device_profiles import DEVICE_KINDS
from optdb.runtime.exported.archive import DTYPES, Archive
from optdb.runtime.exported.fields import Fields, is_number, is_reference, is_whole
from optdb.runtime.exported.rules import GuardSet
from optdb.runtime.exported.sources import LONG16, POINTERS, SourceError, argument_nbytes, read_program
from optdb.runtime.tables import TABLES

__all__ = ["FileTrace", "Manifest", "MemorySpec", "MethodSpec", "SharedValueSpec", "deciding", "read"]

#: Compute units of a device are fewer.
_MOST_UNITS = 1 << 20
#: How many parts commands have behind their names.
_PARTS = {"launch": 6, "copy": 5, "fill": 4, "upload": 3}

_HEX = re.compile(r"([0-9a-f]{2}){1,16}\Z", re.ASCII)


@dataclass(frozen=True)
class SharedValueSpec:
    """A shared value: its name, which axes have length 1, and the member with its first value."""

    name: str
    broadcastable: tuple[bool, ...]
    array: str


@dataclass(frozen=True)
class MemorySpec:
    """A memory of a trace: a shared value, constants, or so many bytes to work in."""

    state: int | None = None
    array: str | None = None
    nbytes: Any = None
    bare: bool = False


@dataclass(frozen=True)
class FileTrace:
    """What a method does on one kind of device; commands and outputs are as in the manifest, and checked."""

    device_kind: str
    compute_units: int
    flags: tuple[str, ...]
    rules: GuardSet
    arguments: list[list[Any]]
    memories: list[MemorySpec]
    commands: list[list[Any]]
    outputs: list[dict[str, Any]]


def deciding(trace: FileTrace) -> frozenset[int]:
    """Return the arguments whose values decide over more than numbers that kernels are given and that are uploaded."""
    places = [place.nbytes for place in trace.memories]
    for shape in trace.arguments:
        places += shape
    for word, *parts in trace.commands:
        if word == "launch":
            _, _, items, group, args, arrays = parts
            offsets = [arg for place in arrays for arg in args[place + 1][2]]
            places += [*items, *(group or ()), *offsets]
        else:
            places += [part for part in parts if not isinstance(part, list)]
            places += _lengths(parts[-1])
    for output in trace.outputs:
        places += [*output.get("shape", ()), *output.get("strides", ()), output.get("offset")]
        places += _lengths(output.get("source"))
    return trace.rules.arguments_behind(places)


def _lengths(source: Any) -> list[Any]:
    """Return the lengths that a source is given, in itself and in others within it."""
    if not isinstance(source, list) or not source:
        return []
    kind, *rest = source
    if kind == "shaped":
        return [*rest[1], *_lengths(rest[0])]
    return [x for arg in rest[1] for x in (_lengths(arg) or [arg])] if kind == "table" else []


@dataclass(frozen=True)
class MethodSpec:
    """A function of the file."""

    name: str
    signature: Signature
    traces: list[FileTrace]


@dataclass(frozen=True)
class ProgramSpec:
    """The source of a program, and what each of its kernels takes."""

    source: str
    kernels: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Manifest:
    """What a file says, checked: its shared values, its programs and its functions."""

    about: str
    states: list[SharedValueSpec]
    programs: list[ProgramSpec]
    methods: list[MethodSpec]


def read(archive: Archive) -> Manifest:
    """Return what a file says.

    Raises
    ------
    FileError
        If it says something that is not valid.
    """
    try:
        return _manifest(archive)
    except RecursionError:
        raise archive.wrong("is not valid: what it says is nested too deeply") from None


def _manifest(archive: Archive) -> Manifest:
    top = Fields(archive, archive.manifest, "manifest")
    states = [
        SharedValueSpec(fields.text("name"), fields.flags("broadcastable"), fields.text("array"))
        for fields in top.objects("states")
    ]
    programs = [_program(archive, fields) for fields in top.objects("programs")]
    _check_distinct(archive, "programs of one source", [fields.text("source") for fields in top.objects("programs")])
    reader = _MethodReader(archive, len(states), programs)
    methods = [reader.method(fields) for fields in top.objects("methods")]
    if not methods:
        raise archive.wrong("has no function in it")
    _check_distinct(archive, "shared values of one name", [state.name for state in states])
    _check_distinct(archive, "functions of one name", [method.name for method in methods])
    return Manifest(top.text("about"), states, programs, methods)


def _check_distinct(archive: Archive, kind: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise archive.wrong(f"has two {kind}")


def _program(archive: Archive, fields: Fields) -> ProgramSpec:
    """Return a program, whose text is in the form that a file's have, and whose table is what it says itself."""
    name = fields.text("source")
    try:
        kernels = read_program(archive.text(name))
    except SourceError as error:
        raise archive.wrong(f"has a program, {name}, that {error}", "Do not use it: no plan has that") from None
    listed = fields.object("kernels").lists()
    if listed != {kernel: list(params) for kernel, params in kernels.items()}:
        raise archive.wrong(f"is not valid: {fields.where}.kernels is not what the kernels of {name} take")
    return ProgramSpec(archive.text(name), kernels)


class _MethodReader:
    """Reads methods.

    Parameters
    ----------
    archive : Archive
        The file.
    states : int
        How many of them there are.
    programs : list of ProgramSpec
        The programs.
    """

    def __init__(self, archive: Archive, states: int, programs: list[ProgramSpec]) -> None:
        self._archive = archive
        self._states = states
        self._programs = programs

    def method(self, fields: Fields) -> MethodSpec:
        """Return a function."""
        signature = self._signature(fields.object("signature"))
        traces = [self._trace(trace, signature) for trace in fields.objects("traces")]
        return MethodSpec(fields.text("name", identifier=True), signature, traces)

    def _signature(self, fields: Fields) -> Signature:
        arguments = tuple(map(self._argument, fields.objects("arguments")))
        return Signature(arguments, fields.text("returns", RESULTS), fields.maybe_texts("keys"))

    def _argument(self, fields: Fields) -> Argument:
        default = fields.maybe_text("default")
        argument = Argument(
            fields.maybe_text("name"),
            fields.dtype("dtype"),
            fields.flags("broadcastable"),
            fields.flag("strict"),
            fields.maybe_flag("allow_downcast"),
            None if default is None else self._archive.array(default),
            fields.flag("floats"),
        )
        if argument.default is not None:
            if argument.default.dtype != argument.dtype:
                raise self._archive.wrong(f"is not valid: {fields.where}.default is not of {argument.dtype}")
            try:
                argument.array(argument.default)
            except TypeError as error:
                raise self._archive.wrong(f"is not valid: {fields.where}.default: {error}") from None
        return argument

    def _trace(self, fields: Fields, signature: Signature) -> FileTrace:
        names = [argument.name or f"argument {i}" for i, argument in enumerate(signature.arguments)]
        ndims = [len(argument.broadcastable) for argument in signature.arguments]
        entries, guards = (fields.list(name, lambda x: isinstance(x, list), "lists") for name in ("entries", "guards"))
        rules = GuardSet(self._archive, entries, guards, names, ndims, fields.where)
        shapes = fields.list("arguments", _lists_of(is_number), "shapes")
        if [len(shape) for shape in shapes] != ndims:
            raise fields.wrong("arguments", "as many shapes as there are arguments", shapes)
        memories = [self._place(place) for place in fields.objects("memories")]
        checker = _Commands(len(memories), self._programs, len(ndims), len(rules))
        commands = fields.list("commands", checker.is_command, "commands")
        outputs = fields.list("outlets", checker.is_output, "results")
        if signature.keys is not None and len(signature.keys) != len(outputs):
            raise fields.wrong("outlets", "as many as there are keys", outputs)
        flags = tuple(fields.list("flags", lambda x: isinstance(x, str) and x in DTYPES, "dtypes"))
        references = [*(x for shape in shapes for x in shape), *(place.nbytes for place in memories)]
        if not all(checker.is_known(x) for x in references):
            raise fields.wrong("arguments", "of entries that there are", references)
        units = fields.whole("units", _MOST_UNITS)
        if not units:
            raise fields.wrong("units", "at least 1", units)
        return FileTrace(fields.text("flavour", DEVICE_KINDS), units, flags, rules, shapes, memories, commands, outputs)

    def _place(self, fields: Fields) -> MemorySpec:
        if fields.has("state"):
            return MemorySpec(state=fields.whole("state", self._states))
        if fields.has("array"):
            return MemorySpec(array=fields.text("array"), bare=fields.flag("bare"))
        return MemorySpec(nbytes=fields.number("nbytes"), bare=fields.flag("bare"))


class _Commands:
    """Tells which commands and results are valid in a trace.

    Parameters
    ----------
    memories : int
        How many of them there are.
    programs : list of ProgramSpec
        The programs.
    arguments, entries : int
        How many of each there are.
    """

    def __init__(self, memories: int, programs: list[ProgramSpec], arguments: int, entries: int) -> None:
        self._memories = memories
        self._programs = programs
        self._arguments = arguments
        self._entries = entries

    def is_known(self, x: Any) -> bool:
        """Tell whether a value is a number, or an entry that there is, or None."""
        return x is None or (is_number(x) and (not is_reference(x) or int(x[1:]) < self._entries))

    def is_command(self, command: Any) -> bool:
        """Tell whether a value is a command."""
        if not isinstance(command, list) or not command or not isinstance(command[0], str):
            return False
        word, *parts = command
        checks = {"launch": self._is_launch, "copy": self._is_copy, "fill": self._is_fill, "upload": self._is_upload}
        return word in checks and len(parts) == _PARTS[word] and checks[word](*parts)

    def _is_copy(self, target: Any, target_offset: Any, source: Any, source_offset: Any, nbytes: Any) -> bool:
        places = self._is_memory(target) and self._is_memory(source)
        return places and all(map(self._is_number, (target_offset, source_offset, nbytes)))

    def _is_fill(self, target: Any, offset: Any, nbytes: Any, pattern: Any) -> bool:
        numbers = self._is_memory(target) and self._is_number(offset) and self._is_number(nbytes)
        if not (numbers and isinstance(pattern, str) and _HEX.match(pattern)):
            return False
        return len(pattern) // 2 in (1, 2, 4, 8, 16)

    def _is_upload(self, target: Any, offset: Any, source: Any) -> bool:
        return self._is_memory(target) and self._is_number(offset) and self.is_source(source)

    def _is_launch(self, program: Any, name: Any, items: Any, group: Any, args: Any, arrays: Any) -> bool:
        if not (is_whole(program) and 0 <= program < len(self._programs) and isinstance(name, str)):
            return False
        params = self._programs[program].kernels.get(name)
        if params is None or not isinstance(args, list) or not isinstance(arrays, list):
            return False
        sizes = self._are_numbers(items) and 1 <= len(items) <= 3
        if not sizes or not (group is None or (self._are_numbers(group) and len(group) == len(items))):
            return False
        if len(args) != len(params) or not all(map(self._is_argument, args, params)):
            return False
        return all(self._is_array(place, args) for place in arrays) and len(set(arrays)) == len(arrays)

    def _is_argument(self, arg: Any, param: str) -> bool:
        """Tell whether a value says what a kernel is given for a parameter of a kind."""
        if arg is None:
            return param in ("global", "constant")
        if not isinstance(arg, list) or not arg:
            return False
        if arg[0] == "memory":
            return len(arg) == 2 and self._is_memory(arg[1]) and param in ("global", "constant")
        if arg[0] == "local":
            return len(arg) == 2 and is_whole(arg[1]) and arg[1] > 0 and param == "local"
        if arg[0] != "number" or len(arg) != 3 or not isinstance(arg[2], list) or not _is_dtype(arg[1]):
            return False
        if param in POINTERS or argument_nbytes(arg[1]) != argument_nbytes(param):
            return False
        count = 16 if arg[1] == LONG16 else 1
        return len(arg[2]) == count and all(map(self._is_value, arg[2]))

    def _is_array(self, place: Any, args: list[Any]) -> bool:
        """Tell whether a buffer stands at a place, and behind it where in it an array begins."""
        if not is_whole(place) or not 0 <= place < len(args) - 1:
            return False
        memory, offset = args[place : place + 2]
        is_memory = memory is None or memory[0] == "memory"
        return is_memory and offset is not None and offset[:2] == ["number", "uint64"]

    def is_source(self, source: Any) -> bool:
        """Tell whether a value says what is uploaded."""
        if not isinstance(source, list) or len(source) < 2 or not isinstance(source[0], str):
            return False
        kind, *rest = source
        if kind == "argument":
            return len(rest) == 1 and is_whole(rest[0]) and 0 <= rest[0] < self._arguments
        if kind == "array":
            return len(rest) == 1 and isinstance(rest[0], str)
        if kind == "value":
            values = len(rest) == 2 and isinstance(rest[1], list) and all(map(self._is_value, rest[1]))
            return values and isinstance(rest[0], str) and rest[0] in DTYPES
        if kind == "shaped":
            return len(rest) == 2 and self.is_source(rest[0]) and self._are_numbers(rest[1])
        return kind == "table" and len(rest) == 2 and self._is_table(*rest)

    def _is_table(self, name: Any, args: Any) -> bool:
        """Tell whether a table is made of an array and as many numbers as it takes."""
        if not isinstance(name, str) or name not in TABLES or not isinstance(args, list):
            return False
        count = TABLES[name][0].__code__.co_argcount
        return len(args) == count and self.is_source(args[0]) and all(map(self._is_number, args[1:]))

    def is_output(self, output: Any) -> bool:
        """Tell whether a value says what a result is."""
        if not isinstance(output, dict) or not _is_dtype(output.get("dtype")) or output["dtype"] == LONG16:
            return False
        if "values" in output:
            values = isinstance(output["values"], list) and all(map(self._is_value, output["values"]))
            ndim = output.get("ndim", 0)
            sized = isinstance(output.get("vector"), bool) and is_whole(ndim) and 0 <= ndim <= 32
            return values and sized and (output["vector"] or len(output["values"]) == 1)
        if "array" in output:
            return isinstance(output["array"], str)
        if "source" in output:
            return self.is_source(output["source"])
        memory = output.get("memory")
        shaped = all(self._are_numbers(output.get(name)) for name in ("shape", "strides"))
        there = memory is None or self._is_memory(memory)
        return (
            shaped
            and len(output["shape"]) == len(output["strides"]) <= 32
            and there
            and self._is_number(output.get("offset"))
        )

    def _is_memory(self, x: Any) -> bool:
        return is_whole(x) and 0 <= x < self._memories

    def _is_number(self, x: Any) -> bool:
        return x is not None and self.is_known(x)

    def _is_value(self, x: Any) -> bool:
        """Tell whether something is a number of any kind; infinity is written as a text."""
        return isinstance(x, float | bool) or x in ("inf", "-inf", "nan") or self._is_number(x)

    def _are_numbers(self, x: Any) -> bool:
        return isinstance(x, list) and all(map(self._is_number, x))


def _is_dtype(name: Any) -> bool:
    return isinstance(name, str) and (name in DTYPES or name == LONG16)


def _lists_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))
