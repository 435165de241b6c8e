"""Runs code around the import of chosen modules, whichever module imports them.

`ImportHook` sits first on ``sys.meta_path``. It finds nothing by itself: for a chosen
module it asks the other finders, and wraps their loader in one that enters a context
manager before the module's code runs and leaves it afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Around = Callable[[ModuleType], AbstractContextManager[None]]


class ImportHook(MetaPathFinder):
    """A finder that wraps the import of some modules.

    Parameters
    ----------
    around : mapping of str to callable
        For each module name, a function that takes the module and returns the context
        manager to run its code in.
    missing : callable
        Called with the name of such a module when no finder finds it. It may raise an
        ImportError with a better message than Python's.
    """

    #: For finders that ask others, too, so that two of them do not ask each other in turn.
    asks_others = True

    def __init__(self, around: Mapping[str, Around], missing: Callable[[str], None]) -> None:
        self.around = around
        self.missing = missing

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the chosen modules through the other finders."""
        if name not in self.around:
            return None
        spec = self._ask_others(name, path, target)
        if spec is None:
            self.missing(name)
            return None
        if spec.loader is not None:
            spec.loader = _AroundLoader(spec.loader, self.around[name])
        return spec

    def _ask_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


class _AroundLoader(Loader):
    """Loads a module by another loader, inside a context manager."""

    def __init__(self, loader: Loader, around: Around) -> None:
        self.loader = loader
        self.around = around

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module shows its true loader: inspect, linecache and
        # importlib.resources ask it for more than a Loader must have.
        assert module.__spec__ is not None, "the module was made from its spec"
        module.__loader__ = module.__spec__.loader = self.loader
        with self.around(module):
            self.loader.exec_module(module)
