"""Runs code around the import of selected modules, whichever module imports them.

`ImportHook` is first on ``sys.meta_path``. It does not find modules itself: for a selected
module it queries the other finders, and wraps the loader in one that enters a context
manager before the module's code runs and exits it afterwards.
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
        Module name to a function that takes the module and returns the context
        manager in which its code runs.
    missing : callable
        Called with the name of a selected module that no finder finds. It may raise an
        ImportError with a better message than Python's.
    """

    #: Read by finders that query other finders, so that two of them do not query each other endlessly.
    asks_others = True

    def __init__(self, around: Mapping[str, Around], missing: Callable[[str], None]) -> None:
        self.around = around
        self.missing = missing

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the selected modules through the other finders."""
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
    """Loads a module with another loader, inside a context manager."""

    def __init__(self, loader: Loader, around: Around) -> None:
        self.loader = loader
        self.around = around

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From now on the module has its true loader: inspect, linecache and
        # importlib.resources use more attributes than a Loader must have.
        assert module.__spec__ is not None, "the module was made from its spec"
        module.__loader__ = module.__spec__.loader = self.loader
        with self.around(module):
            self.loader.exec_module(module)
