"""Records: dataclasses that a file stores as JSON objects with named fields.

Each :func:`saved` field has a parser. `Record.parse` checks every field of an untrusted JSON value; `Record.to_json` is
its inverse. A field may refer to fields that were parsed before it (`Where.before`).
"""

from __future__ import annotations

import dataclasses
import functools
import io
import marshal
import math
import reprlib
from collections.abc import Callable, KeysView, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, TypeGuard, TypeVar

import numpy as np

from optdb.numpy_types import HostArray

#: Integers in a file are in ``range(-LIMIT, 2 * LIMIT)``, which covers all integer types in OpenCL.
LIMIT = 1 << 63
#: The `marshal` version that distinguishes 0.0 from -0.0.
_WITHOUT_REFERENCES = 2
#: The dtypes that arrays and numbers may have, on a device and in a file.
DTYPES = frozenset(
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    ]
)

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxlong = 3, 6, 4, 40, 40


def array_bytes(value: HostArray) -> bytes:
    """Serialize an array to the bytes of a member."""
    content = io.BytesIO()
    np.save(content, np.array(value, order="C", copy=True), allow_pickle=False)
    return content.getvalue()


class Members:
    """The members of a file that are not JSON, without duplicates."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def array(self, value: HostArray) -> str:
        """Add an array, and return the name of the member that contains it."""
        return self._name(array_bytes(value), "arrays/{}.npy")

    def text(self, value: str) -> str:
        """Add a program, and return the name of the member that contains it."""
        return self._name(value.encode(), "programs/{}.cl")

    def _name(self, content: bytes, pattern: str) -> str:
        if content not in self._names:
            self._names[content] = pattern.format(len(self._names))
            self.contents[self._names[content]] = content
        return self._names[content]


class Invalid(Exception):
    """Raised if a value in a file is not valid.

    While the error propagates, it collects the keys of enclosing values.
    """

    def __init__(self, wanted: str, got: Any, keys: Sequence[str | int]) -> None:
        super().__init__(f"must be {wanted}, not {_SHORT.repr(got)}")
        #: The keys on the path from the value to the root of the JSON document.
        self.keys = [*reversed(keys)]

    def __str__(self) -> str:
        root, *keys = reversed(self.keys)
        position = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
        return f"{root}{position} {self.args[0]}"


class Where:
    """The state that parsers share: the archive, and the fields parsed so far.

    Parsers do not track positions, because most values are valid; instead, an `Invalid` error collects its position
    while it propagates.
    """

    __slots__ = ("_keys", "archive", "field", "records", "repeated")

    def __init__(
        self, archive: Any, records: list[dict[str, Any]] | None = None, keys: tuple[str | int, ...] = ()
    ) -> None:
        #: Reads members by name, and creates errors about the file (`Archive`).
        self.archive = archive
        #: For each enclosing record, innermost last, the fields parsed so far.
        self.records = [] if records is None else records
        #: The name of the field whose value is parsed next; None if the value is not a field.
        self.field: str | None = None
        #: Maps serialized values to the results of `repeated` parsers. A parser replaces this dict by a new one where
        #: references have a different meaning.
        self.repeated: dict[bytes, Any] = {}
        self._keys = keys

    def at(self, key: str | int) -> Where:
        """Return the position of a field or an element, for errors."""
        return Where(self.archive, self.records, (*self._keys, key))

    def before(self, name: str) -> Any:
        """Return the innermost field with the given name; the field must exist, but may be only partly parsed."""
        for parsed in reversed(self.records):
            if name in parsed:
                return parsed[name]
        raise KeyError(name)

    def wrong(self, wanted: str, got: Any) -> Invalid:
        """Return an error that describes the wanted value and the value found."""
        return Invalid(wanted, got, self._keys)


#: Converts a JSON value at a position to a field's value; raises `Where.wrong` if the JSON value is not valid.
Parser = Callable[[Any, Where], Any]
_R = TypeVar("_R", bound="Record")


def saved(parse: Parser, **options: Any) -> Any:
    """Return a saved field of a record; the options are those of `dataclasses.field`."""
    return dataclasses.field(metadata={"parse": parse}, **options)


class Record:
    """Base class of dataclasses that a file stores as JSON objects with exactly the record's saved fields."""

    __slots__ = ()
    #: The value of the JSON object's field `kind`, which selects a class; None if the object has no such field.
    kind: ClassVar[str | None] = None
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @classmethod
    def parse(cls: type[_R], value: Any, where: Where) -> _R:
        """Parse a JSON value as a record; raise `Invalid` or the archive's error if a field is not valid."""
        parsers, unsaved, names = _fields(cls)
        if not isinstance(value, dict) or value.keys() != names:
            raise where.wrong(f"an object with the fields {', '.join(names)}" if names else "an empty object", value)
        parsed: dict[str, Any] = {}
        where.records.append(parsed)
        for name, parse in parsers:
            where.field = name
            try:
                parsed[name] = parse(value[name], where)
            except Invalid as error:
                error.keys.append(name)
                raise
        where.field = None
        record = cls(**unsaved, **parsed)
        record.check(where)
        where.records.pop()
        return record

    def check(self, where: Where) -> None:
        """Check that the fields of a parsed record are consistent; raise the same errors as `parse`."""

    def to_json(self, members: Members) -> Any:
        """Return the record's JSON value; arrays and texts become members of the file."""
        kind = {} if self.kind is None else {"kind": self.kind}
        return kind | {name: to_json(getattr(self, name), members) for name, _ in _fields(type(self))[0]}


#: A record class's saved fields and their parsers, its required fields that are not saved, and the JSON keys.
_Fields: TypeAlias = "tuple[list[tuple[str, Parser]], dict[str, None], KeysView[str]]"


def _found_fields(cls: type[Record]) -> _Fields:
    fields = dataclasses.fields(cls)
    parsers = {field.name: field.metadata["parse"] for field in fields if field.metadata}
    required = (field for field in fields if field.default is field.default_factory is dataclasses.MISSING)
    unsaved = {field.name: None for field in required if field.name not in parsers}
    names = parsers if cls.kind is None else {"kind": None, **parsers}
    return list(parsers.items()), unsaved, names.keys()


_fields: Callable[[type[Record]], _Fields] = functools.cache(_found_fields)  # type: ignore[assignment]  # the class's hash


def saved_values(record: Record) -> list[Any]:
    """Return the values of a record's saved fields."""
    return [getattr(record, name) for name, _ in _fields(type(record))[0]]


def to_json(value: Any, members: Members) -> Any:
    """Convert a field's value to JSON."""
    match value:
        case Record():
            return value.to_json(members)
        case list() | tuple():
            return [to_json(element, members) for element in value]
        case Mapping():
            return {name: to_json(element, members) for name, element in value.items()}
        case np.ndarray():
            return members.array(value)
        case np.generic():
            return to_json(value.item(), members)
        case bytes():
            return value.hex()
        case float() if not math.isfinite(value):
            # JSON has no infinity or NaN, so write strings.
            return repr(value)
    return value


def checked(test: Callable[[Any], bool], wanted: str) -> Parser:
    """Return a parser for values that pass a test; `wanted` describes them in error messages."""

    def parse(value: Any, where: Where) -> Any:
        if not test(value):
            raise where.wrong(wanted, value)
        return value

    return parse


def is_whole(value: Any) -> TypeGuard[int]:
    """Return whether a value is a 64-bit integer."""
    return isinstance(value, int) and not isinstance(value, bool) and -LIMIT <= value < 2 * LIMIT


text = checked(lambda value: isinstance(value, str), "a text")
flag = checked(lambda value: isinstance(value, bool), "true or false")
dtype = checked(lambda value: isinstance(value, str) and value in DTYPES, "a dtype")


def choice(among: Any) -> Parser:
    """Return a parser that accepts one of several strings."""
    return checked(lambda value: isinstance(value, str) and value in among, f"one of {', '.join(among)}")


def within(among: range) -> Parser:
    """Return a parser for an integer in a range."""
    wanted = f"an integer from {among.start} to {among.stop - 1}"
    return checked(lambda value: is_whole(value) and value in among, wanted)


def maybe(parse: Parser) -> Parser:
    """Return a parser that accepts null and everything that `parse` accepts."""
    return lambda value, where: None if value is None else parse(value, where)


def list_of(parse: Parser, what: str, make: Callable[[list[Any]], Any] = tuple) -> Parser:
    """Return a parser that reads a list and converts it with `make`; an element may refer to earlier elements."""

    def parse_list(value: Any, where: Where) -> Any:
        if not isinstance(value, list):
            raise where.wrong(f"a list of {what}", value)
        elements: list[Any] = []
        if where.field is not None:
            where.records[-1][where.field] = elements
            where.field = None
        try:
            for element in value:
                elements.append(parse(element, where))
        except Invalid as error:
            error.keys.append(len(elements))
            raise
        return make(elements)

    return parse_list


def repeated(parse: Parser) -> Parser:
    """Return a parser for immutable records; it parses equal values only once (`Where.repeated`)."""

    def parse_once(value: Any, where: Where) -> Any:
        key = marshal.dumps(value, _WITHOUT_REFERENCES)
        record = where.repeated.get(key)
        if record is None:
            record = where.repeated[key] = parse(value, where)
        return record

    return parse_once


def one_of(*records: type[Record]) -> Parser:
    """Return a parser for a record of one of several classes, selected by `kind`."""
    by_kind = {record.kind: record for record in records if record.kind is not None}
    wanted = f"an object of one of the kinds {', '.join(by_kind)}"

    def parse(value: Any, where: Where) -> Record:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in by_kind:
            raise where.wrong(wanted, value)
        return by_kind[kind].parse(value, where)

    return parse


def index_in(name: str) -> Parser:
    """Return a parser for an index into a list that was parsed earlier."""

    def parse(value: Any, where: Where) -> int:
        count = len(where.before(name))
        if not is_whole(value) or not 0 <= value < count:
            raise where.wrong(f"the number of one of {count} {name}", value)
        return value

    return parse


def array(value: Any, where: Where) -> HostArray:
    """Parse the name of a member that is an array, and return the array."""
    values: HostArray = where.archive.array(value)
    return values


flags = list_of(flag, "true and false")
texts = list_of(text, "texts")
