"""Attributes of Theano's classes that are exchanged while optdb is enabled.

Nothing of Theano's files is changed.  A :class:`Patch` remembers what it
replaced and puts exactly that back.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

_MISSING = object()


class Patch:
    """One attribute of one object, replaced between `install` and `uninstall`.

    Parameters
    ----------
    owner : object
        A class or a module of the host.
    name : str
        The attribute; the owner need not define it itself.
    value : object
        What stands there while the patch is installed.
    """

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self.owner = owner
        self.name = name
        self.value = value
        self._original: Any = _MISSING
        self.installed = False

    def install(self) -> None:
        """Put the value in place; installing twice is the same as once."""
        if self.installed:
            return
        self._original = vars(self.owner).get(self.name, _MISSING)
        setattr(self.owner, self.name, self.value)
        self.installed = True

    def uninstall(self) -> None:
        """Put the original back."""
        if not self.installed:
            return
        if self._original is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._original)
        self.installed = False


class Switch:
    """What turning something on returns; as a context manager it turns it off at the end.

    Parameters
    ----------
    turn_off : callable
        Called at the end of a ``with`` block, unless it was on before.
    was_on : bool
        Whether it was.
    """

    def __init__(self, turn_off: Callable[[], None], was_on: bool) -> None:
        self._turn_off = turn_off
        self._was_on = was_on

    def __enter__(self) -> Switch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._was_on:
            self._turn_off()
