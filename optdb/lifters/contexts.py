"""Contexts by name, such as ``dev0``; graphs hold names, not contexts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any


class ContextNotDefined(ValueError):
    """Raised if no context has the given name."""


class Contexts:
    """Contexts by name.

    Parameters
    ----------
    make : callable
        Creates a context from the device registered under a name.
    fill : callable, optional
        Registers the names that the user's flags list. Called before the first lookup, and before the first lookup
        after each `clear`.
    hint : str
        An example of a setting that names a device, to show in error messages.
    """

    def __init__(
        self,
        make: Callable[[str], Any],
        fill: Callable[[Contexts], None] | None = None,
        hint: str = "optdb.contexts=dev0->opencl0:0",
    ) -> None:
        self._make = make
        self._fill = fill
        self._hint = hint
        self._lock = threading.RLock()
        self._specs: dict[Hashable, str] = {}
        self._made: dict[Hashable, Any] = {}
        self._default: Hashable = None
        self._filled = False
        #: Maps a thread and a name to the object that replaces the context.
        self._substitutes: dict[tuple[int, Hashable], Any] = {}

    def register(self, name: Hashable, spec: str) -> None:
        """Bind a name to a device; raise ValueError if the name is reserved, or bound to another device."""
        if name is None or name == "cpu":
            raise ValueError(f"{name!r} cannot be the name of a context: it is reserved")
        with self._lock:
            self._ensure_filled()
            registered = self._specs.setdefault(name, spec)
        if registered != spec:
            raise ValueError(f"the context {name} is already {registered}; forget it before it is registered as {spec}")

    def get(self, name: Hashable = None) -> Any:
        """Return the context for a name, or the default context for None; create the context on first use.

        Raises
        ------
        ContextNotDefined
            If there is no such name.
        """
        # Try without the lock first, since ops call this on every evaluation.
        context = self._made.get(name)
        if self._substitutes:
            context = self._substitutes.get((threading.get_ident(), name), context)
        if context is not None:
            return context
        with self._lock:
            name = self.resolve(name)
            if name not in self._made:
                self._made[name] = self._make(self._specs[name])
            return self._made[name]

    @contextmanager
    def substituted(self, name: Hashable, context: Any) -> Iterator[None]:
        """Replace a named context with another object in this thread until the block exits."""
        key = threading.get_ident(), self.resolve(name)
        before = self._substitutes.get(key)
        self._substitutes[key] = context
        try:
            yield
        finally:
            if before is None:
                del self._substitutes[key]
            else:
                self._substitutes[key] = before

    def resolve(self, name: Hashable = None) -> Hashable:
        """Return the name itself, or the name of the default context for None.

        Raises
        ------
        ContextNotDefined
            If there is no such name.
        """
        with self._lock:
            self._ensure_filled()
            resolved = self._default if name is None else name
            if resolved not in self._specs:
                raise self._unknown(name)
            return resolved

    def name_of(self, has: Callable[[Any], bool]) -> Hashable:
        """Return the name of the first existing context that satisfies a predicate; None if there is none."""
        with self._lock:
            return next((name for name, context in self._made.items() if has(context)), None)

    def names(self) -> list[Hashable]:
        """Return all names in the order of registration."""
        with self._lock:
            self._ensure_filled()
            return list(self._specs)

    def __contains__(self, name: Hashable) -> bool:
        return name in self.names()

    @property
    def default(self) -> Hashable:
        """The name of the default context; None if there is none."""
        with self._lock:
            self._ensure_filled()
            return self._default

    @default.setter
    def default(self, name: Hashable) -> None:
        self._default = None if name is None else self.resolve(name)

    @contextmanager
    def as_default(self, name: Hashable) -> Iterator[Hashable]:
        """Make a name the default until the block exits."""
        before, self.default = self.default, name
        try:
            yield name
        finally:
            self.default = before

    def forget(self, name: Hashable) -> None:
        """Remove a name. Arrays in the removed name's context stay valid."""
        with self._lock:
            self.resolve(name)
            del self._specs[name]
            self._made.pop(name, None)
            if self._default == name:
                self._default = None

    def clear(self) -> None:
        """Remove all names. The next lookup then registers the names that the flags list."""
        with self._lock:
            self._specs.clear()
            self._made.clear()
            self._default = None
            self._filled = False

    def _ensure_filled(self) -> None:
        if self._filled:
            return
        self._filled = True  # set before the call, because `fill` looks up names
        if self._fill is None:
            return
        try:
            self._fill(self)
        except BaseException:
            self._filled = False
            raise

    def _unknown(self, name: Hashable) -> ContextNotDefined:
        if name is None:
            return ContextNotDefined(
                "there is no default context, and no device was named.\n"
                f"The cure: THEANO_FLAGS=optdb.device=opencl selects the best device; THEANO_FLAGS='{self._hint}' "
                "names devices"
            )
        names = ", ".join(map(str, self._specs)) or "none"
        hint = self._hint.replace("dev0", str(name))
        return ContextNotDefined(f"{name}: no such context; there is {names}.\nThe cure: THEANO_FLAGS='{hint}'")
