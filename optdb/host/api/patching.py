"""Patches of the host's attributes, each with a reason and a way to undo it.

The patches on one attribute form a stack. After a patch in the middle is removed, the patches above it are applied
again to the value below. ``python -m optdb doctor --patches`` prints all `groups`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_MISSING = object()
_lock = threading.RLock()


class Patch:
    """One attribute of one object, replaced between `install` and `uninstall`.

    Parameters
    ----------
    owner : object
        A class, an object or a module of the host.
    name : str
        The attribute, which may be inherited.
    value : object
        The attribute's value while the patch is the topmost one.
    reason : str
        Why Theano's own value is unsuitable, as a clause.
    """

    def __init__(self, owner: Any, name: str, value: Any, reason: str) -> None:
        self.owner = owner
        self.name = name
        self.value = value
        self.reason = reason
        self.installed = False

    def over(self, beneath: Any) -> Any:
        """Return the attribute's new value, given the value `beneath` this patch."""
        return self.value

    def install(self) -> None:
        """Set the value on top of other patches, unless the patch is already installed."""
        with _lock:
            if self.installed:
                return
            _stack_of(self.owner, self.name).push(self)
            self.installed = True

    def uninstall(self) -> None:
        """Remove the value; earlier and later patches on the attribute remain."""
        with _lock:
            if not self.installed:
                return
            _stack_of(self.owner, self.name).remove(self)
            self.installed = False


class Wrapper(Patch):
    """A patch that wraps the value below it in the stack, and wraps it anew whenever a patch below is removed."""

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any], Any], reason: str) -> None:
        super().__init__(owner, name, wrap, reason)

    def over(self, beneath: Any) -> Any:
        """Return the wrapped attribute."""
        return self.value(beneath)


def around(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a `wrap` for `Wrapper`; the wrapper passes the wrapped function and the arguments to `function`."""

    def wrap(wrapped: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wrapped)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(wrapped, *args, **kwargs)

        return call

    return wrap


class _Stack:
    """The patches on one attribute in order of installation, the values that they replaced, and their own values."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner  # keeps the owner alive, because `_stacks` uses its id
        self.name = name
        self.original = self._present()
        self.patches: list[Patch] = []
        self.beneath: list[Any] = []
        self.values: list[Any] = []

    def push(self, patch: Patch) -> None:
        if not self._is_ours():
            self._start_over()
        self._append(patch, getattr(self.owner, self.name, None))
        setattr(self.owner, self.name, self.values[-1])

    def remove(self, patch: Patch) -> None:
        if patch not in self.patches:  # a value that other code has set on top remains
            return
        was_ours = self._is_ours()
        at = self.patches.index(patch)
        beneath, above = self.beneath[at], self.patches[at + 1 :]
        del self.patches[at:], self.beneath[at:], self.values[at:]
        for other in above:
            self._append(other, beneath)
            beneath = self._as_seen(self.values[-1])
        if was_ours:
            self._put()
        if not self.patches:
            _stacks.pop((id(self.owner), self.name), None)

    def _append(self, patch: Patch, beneath: Any) -> None:
        self.patches.append(patch)
        self.beneath.append(beneath)
        self.values.append(patch.over(beneath))

    def _put(self) -> None:
        value = self.values[-1] if self.values else self.original
        if value is _MISSING:
            delattr(self.owner, self.name)
        elif value is not self._present():
            setattr(self.owner, self.name, value)

    def _present(self) -> Any:
        return vars(self.owner).get(self.name, _MISSING)

    def _is_ours(self) -> bool:
        """Return whether the attribute has its original value or a value from this stack."""
        return self._present() is (self.values[-1] if self.values else self.original)

    def _start_over(self) -> None:
        """If other code has set the attribute, treat the present value as the host's own."""
        self.original = self._present()
        for values in (self.patches, self.beneath, self.values):
            values.clear()

    def _as_seen(self, value: Any) -> Any:
        """Return what ``owner.name`` would be if the owner's dictionary contained `value`, perhaps a staticmethod."""
        return value.__get__(None, self.owner) if isinstance(value, (staticmethod, classmethod)) else value


_stacks: dict[tuple[int, str], _Stack] = {}


def _stack_of(owner: Any, name: str) -> _Stack:
    key = id(owner), name
    if key not in _stacks:
        _stacks[key] = _Stack(owner, name)
    return _stacks[key]


class PatchGroup:
    """Patches that are installed in order, and removed together.

    Parameters
    ----------
    title : str
        The purpose of the patches.
    in_force : str
        When the patches are installed.
    undo : str
        What the user calls to remove the patches.
    patches : iterable of Patch
        The patches.
    """

    def __init__(self, title: str, in_force: str, undo: str, patches: Iterable[Patch] = ()) -> None:
        self.title = title
        self.in_force = in_force
        self.undo = undo
        self.patches = list(patches)
        _groups.append(self)

    @property
    def installed(self) -> bool:
        """Whether the patches are installed."""
        return bool(self.patches) and self.patches[0].installed

    def install(self) -> None:
        """Install all patches that are not installed yet."""
        for patch in self.patches:
            patch.install()

    def uninstall(self) -> None:
        """Remove all patches."""
        for patch in reversed(self.patches):
            patch.uninstall()


_groups: list[PatchGroup] = []


def groups() -> list[PatchGroup]:
    """Return all groups, by title."""
    return sorted(_groups, key=lambda group: group.title)


@contextmanager
def applied(*patches: Patch) -> Iterator[None]:
    """Install patches within a block."""
    for patch in patches:
        patch.install()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.uninstall()


class Switch:
    """Returned when a feature is turned on; at the end of a `with` block, calls `turn_off`, unless `was_on` is set."""

    def __init__(self, turn_off: Callable[[], None], was_on: bool) -> None:
        self._turn_off = turn_off
        self._was_on = was_on

    def __enter__(self) -> Switch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._was_on:
            self._turn_off()
