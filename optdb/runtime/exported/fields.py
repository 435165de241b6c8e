"""Checks of a manifest, field by field: nothing of a file is used before it is checked."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from optdb.runtime.exported.archive import DTYPES, Archive

#: Whole numbers of a file are in this range: so are all that OpenCL takes.
LIMIT = 1 << 63
#: The names of entries.
_REFERENCE = re.compile(r"\$(0|[1-9]\d{0,8})\Z", re.ASCII)

#: Shortens an invalid value for an error: its whole text may be larger than the file.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxlong = 3, 6, 4, 40, 40

Check = Callable[[Any], bool]


class Fields:
    """An object of the manifest, whose fields are taken one by one; `where` says where it stands, for errors."""

    def __init__(self, archive: Archive, value: Any, where: str) -> None:
        self.archive = archive
        self.where = where
        if not isinstance(value, dict):
            raise self.wrong("", "an object", value)
        self.value = value

    def wrong(self, name: str, wanted: str, got: Any) -> Exception:
        """Return an error about a field."""
        place = ".".join(part for part in (self.where, name) if part)
        return self.archive.wrong(f"is not valid: {place} has to be {wanted}, and is {_SHORT.repr(got)}")

    def take(self, name: str, check: Check, wanted: str) -> Any:
        """Return a field that passes a check; `wanted` says in words what that is."""
        value = self.value.get(name)
        if not check(value):
            raise self.wrong(name, wanted, value)
        return value

    def text(self, name: str) -> str:
        """Return a text."""
        return self.take(name, is_text, "a name")

    def choice(self, name: str, among: Sequence[str]) -> str:
        """Return one of some texts."""
        return self.take(name, lambda value: is_text(value) and value in among, f"one of {', '.join(among)}")

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        return self.take(name, is_flag, "true or false")

    def whole(self, name: str, among: range) -> int:
        """Return a whole number of a range."""
        description = f"a whole number from {among.start} on, below {among.stop}"
        return self.take(name, lambda value: is_whole(value) and value in among, description)

    def maybe(self, take: Callable[[str], Any], name: str) -> Any:
        """Return the result of a method of this object for a field, or None if the field is missing."""
        return None if self.value.get(name) is None else take(name)

    def list(self, name: str, check: Check, wanted: str) -> list[Any]:
        """Return a list, each element of which passes a check."""
        value = self.take(name, is_list, f"a list of {wanted}")
        for place, element in enumerate(value):
            if not check(element):
                raise self.wrong(f"{name}[{place}]", f"one of a list of {wanted}", element)
        return value

    def flags(self, name: str) -> tuple[bool, ...]:
        """Return truth values."""
        return tuple(self.list(name, is_flag, "true and false"))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return texts."""
        return tuple(self.list(name, is_text, "texts"))

    def object(self, name: str) -> Fields:
        """Return an object."""
        return Fields(self.archive, self.value.get(name), f"{self.where}.{name}")

    def objects(self, name: str) -> list[Fields]:
        """Return a list of objects."""
        objects = self.list(name, lambda value: isinstance(value, dict), "objects")
        return [Fields(self.archive, value, f"{self.where}.{name}[{i}]") for i, value in enumerate(objects)]


def is_text(value: Any) -> bool:
    """Tell whether a value is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Tell whether a value is a truth value."""
    return isinstance(value, bool)


def is_list(value: Any) -> bool:
    """Tell whether a value is a list."""
    return isinstance(value, list)


def is_dtype(value: Any) -> bool:
    """Tell whether a value names a dtype."""
    return isinstance(value, str) and value in DTYPES


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -LIMIT <= value < 2 * LIMIT


def is_index(value: Any, below: int) -> bool:
    """Tell whether a value is a whole number from 0 on, below another one."""
    return is_whole(value) and 0 <= value < below


def is_reference(value: Any) -> bool:
    """Tell whether a value names an entry."""
    return isinstance(value, str) and _REFERENCE.match(value) is not None


def is_number(value: Any, entries: int) -> bool:
    """Tell whether a value is a whole number, or names one of the entries."""
    return is_whole(value) or (is_reference(value) and int(value[1:]) < entries)
