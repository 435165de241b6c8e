"""Names for contexts: a graph says ``dev0``, and what that is is found when it is needed.

A context is a device made ready for use. Its name is all that a graph, or a pickle of one,
holds. `Contexts` keeps which device each name stands for, and makes the context when it is
first asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from optdb.flags import context_pairs as parse

__all__ = ["ContextNotDefined", "Contexts", "parse"]


class ContextNotDefined(ValueError):
    """No context has that name."""


class Contexts:
    """Contexts by name.

    Parameters
    ----------
    make : callable
        Makes a context of what a name was registered with.
    fill : callable, optional
        Registers the names that the user's flags give; called once, before a name is first
        looked for, and again after `clear`.
    hint : str
        How a user gives a name to a device.
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
        #: Thread and name to what stands in for the context there.
        self._substitutes: dict[tuple[int, Hashable], Any] = {}

    def register(self, name: Hashable, spec: str) -> None:
        """Give a name to a device.

        Raises
        ------
        ValueError
            If the name stands for another device.
        """
        if name is None or name == "cpu":
            raise ValueError(f"{name!r} is no name for a context: it has a meaning already")
        with self._lock:
            self._ensure_filled()
            known = self._specs.setdefault(name, spec)
        if known != spec:
            raise ValueError(f"the context {name} is {known}; forget it before it becomes {spec}")

    def get(self, name: Hashable = None) -> Any:
        """Return the context of a name, of the default's for None; make it if need be.

        Raises
        ------
        ContextNotDefined
            If there is no such name.
        """
        # Without the lock: this is asked for each time an op computes.
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
        """Let something stand in for the context of a name, in this thread, meanwhile."""
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
        """Return the name itself, the default's for None.

        Raises
        ------
        ContextNotDefined
            If there is no such name.
        """
        with self._lock:
            self._ensure_filled()
            known = self._default if name is None else name
            if known not in self._specs:
                raise self._unknown(name)
            return known

    def name_of(self, has: Callable[[Any], bool]) -> Hashable:
        """Return the name of the context that has something, None if none has.

        Parameters
        ----------
        has : callable
            Told each context that was made so far.
        """
        with self._lock:
            return next((name for name, context in self._made.items() if has(context)), None)

    def names(self) -> list[Hashable]:
        """Return all names, in the order in which they were registered."""
        with self._lock:
            self._ensure_filled()
            return list(self._specs)

    def __contains__(self, name: Hashable) -> bool:
        return name in self.names()

    @property
    def default(self) -> Hashable:
        """The name that None stands for; None if there is no such."""
        with self._lock:
            self._ensure_filled()
            return self._default

    @default.setter
    def default(self, name: Hashable) -> None:
        self._default = None if name is None else self.resolve(name)

    @contextmanager
    def as_default(self, name: Hashable) -> Iterator[Hashable]:
        """Let None stand for a name meanwhile."""
        before, self.default = self.default, name
        try:
            yield name
        finally:
            self.default = before

    def forget(self, name: Hashable) -> None:
        """Take a name away; nothing happens to arrays in its context."""
        with self._lock:
            self.resolve(name)
            del self._specs[name]
            self._made.pop(name, None)
            if self._default == name:
                self._default = None

    def clear(self) -> None:
        """Take all names away. Those of the flags come back when a name is looked for."""
        with self._lock:
            self._specs.clear()
            self._made.clear()
            self._default = None
            self._filled = False

    def _ensure_filled(self) -> None:
        if self._filled:
            return
        self._filled = True  # before it is true: filling looks names up
        if self._fill is None:
            return
        try:
            self._fill(self)
        except BaseException:
            self._filled = False
            raise

    def _unknown(self, name: Hashable) -> ContextNotDefined:
        hint = f"THEANO_FLAGS='{self._hint}' names a device"
        if name is None:
            return ContextNotDefined(
                f"there is no default context, and none was named; {hint}, and optdb.device makes it the default"
            )
        known = ", ".join(map(str, self._specs)) or "none"
        return ContextNotDefined(f"{name}: no such context; there is {known}; {hint}")
