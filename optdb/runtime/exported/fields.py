"""Checks of what a manifest says, field by field: nothing of a file is used before it was looked at."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from optdb.runtime.exported.archive import DTYPES, Archive

__all__ = ["Fields", "is_number", "is_reference", "is_whole", "short"]

#: Whole numbers of a file are in this range: so are all that OpenCL takes.
LIMIT = 1 << 63
#: What entries are called.
_REFERENCE = re.compile(r"\$(0|[1-9]\d{0,8})\Z", re.ASCII)

#: Of what is not valid, so much is shown: its whole text may be larger than the file.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxlong = 3, 6, 4, 40, 40


class Fields:
    """An object of the manifest, whose fields are taken one by one.

    Parameters
    ----------
    archive : Archive
        The file, for errors.
    value : object
        What should be an object.
    where : str
        Where it stands in the manifest.
    """

    def __init__(self, archive: Archive, value: Any, where: str) -> None:
        self.archive = archive
        self.where = where
        if not isinstance(value, dict):
            raise self.wrong("", "an object", value)
        self._value = value

    def wrong(self, name: str, wanted: str, got: Any) -> Exception:
        """Return an error about a field."""
        place = ".".join(part for part in (self.where, name) if part)
        return self.archive.wrong(f"is not valid: {place} has to be {wanted}, and is {short(got)}")

    def has(self, name: str) -> bool:
        """Tell whether there is a field of that name."""
        return name in self._value

    def text(self, name: str, among: Sequence[str] = (), identifier: bool = False) -> str:
        """Return a text: one of some, or one that names something."""
        value = self._value.get(name)
        if not isinstance(value, str) or (among and value not in among) or (identifier and not _is_name(value)):
            raise self.wrong(name, f"one of {', '.join(among)}" if among else "a name", value)
        return value

    def maybe_text(self, name: str) -> str | None:
        """Return a text or None."""
        return None if self._value.get(name) is None else self.text(name)

    def maybe_texts(self, name: str) -> tuple[str, ...] | None:
        """Return texts or None."""
        if self._value.get(name) is None:
            return None
        return tuple(self.list(name, lambda value: isinstance(value, str), "texts"))

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def maybe_flag(self, name: str) -> bool | None:
        """Return a truth value or None."""
        return None if self._value.get(name) is None else self.flag(name)

    def dtype(self, name: str) -> str:
        """Return the name of a dtype."""
        value = self._value.get(name)
        if not isinstance(value, str) or value not in DTYPES:
            raise self.wrong(name, "a dtype", value)
        return value

    def whole(self, name: str, below: int) -> int:
        """Return a whole number from 0 on, below another one."""
        value = self._value.get(name)
        if not is_whole(value) or not 0 <= value < below:
            raise self.wrong(name, f"a whole number below {below}", value)
        return value

    def list(self, name: str, check: Callable[[Any], bool], wanted: str) -> list[Any]:
        """Return a list, each element of which passes a check."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, f"a list of {wanted}", value)
        for place, element in enumerate(value):
            if not check(element):
                raise self.wrong(f"{name}[{place}]", f"one of a list of {wanted}", element)
        return value

    def objects(self, name: str) -> list[Fields]:
        """Return a list of objects."""
        given = self.list(name, lambda value: isinstance(value, dict), "objects")
        return [Fields(self.archive, value, f"{self.where}.{name}[{i}]") for i, value in enumerate(given)]

    def object(self, name: str) -> Fields:
        """Return an object."""
        return Fields(self.archive, self._value.get(name), f"{self.where}.{name}")

    def lists(self) -> dict[str, list[Any]]:
        """Return the object itself, each field of which is a list."""
        for name, value in self._value.items():
            if not isinstance(value, list):
                raise self.wrong(name, "a list", value)
        return self._value

    def flags(self, name: str) -> tuple[bool, ...]:
        """Return truth values."""
        return tuple(self.list(name, lambda value: isinstance(value, bool), "true and false"))

    def number(self, name: str) -> Any:
        """Return a whole number or the name of an entry."""
        value = self._value.get(name)
        if not is_number(value):
            raise self.wrong(name, "a whole number or an entry", value)
        return value

    def numbers(self, name: str) -> list[Any]:
        """Return whole numbers and names of entries."""
        return self.list(name, is_number, "whole numbers and entries")


def short(value: Any) -> str:
    """Return the beginning of a value's text."""
    return _SHORT.repr(value)


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -LIMIT <= value < 2 * LIMIT


def is_number(value: Any) -> bool:
    """Tell whether a value is a whole number, or names an entry."""
    return is_whole(value) or is_reference(value)


def is_reference(value: Any) -> bool:
    """Tell whether a value names an entry."""
    return isinstance(value, str) and _REFERENCE.match(value) is not None


def _is_name(value: str) -> bool:
    return value.isidentifier() and value.isascii()
