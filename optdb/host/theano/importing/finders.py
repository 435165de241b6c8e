"""The finders that optdb puts at the front of ``sys.meta_path``. To find a module, each of them queries other finders.

`ImportHook` runs the code of selected modules inside a context manager; `TranslatingFinder` replaces the loaders of the
modules that it translates.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

from optdb.host.theano.importing.compat import versions

Around = Callable[[ModuleType], AbstractContextManager[None]]


class ImportHook(MetaPathFinder):
    """A finder that wraps the import of selected modules.

    `around` maps a module's name to a function that returns a context manager, in which the module's code runs.
    `missing` is called with the name of a selected module that no finder finds, so that it can raise a better error
    than Python's.
    """

    #: Finders that query other finders have this attribute, by which `TranslatingFinder` skips them: the finders would
    #: otherwise call each other without end.
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
        spec = next(_specs((finder for finder in sys.meta_path if finder is not self), name, path, target), None)
        if spec is None:
            self.missing(name)
            return None
        if spec.loader is not None:
            spec.loader = _AroundLoader(spec.loader, self.around[name])
        return spec


class _AroundLoader(Loader):
    def __init__(self, loader: Loader, around: Around) -> None:
        self.loader = loader
        self.around = around

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Restore the real loader, because inspect, linecache and importlib.resources need more than the Loader
        # interface.
        assert module.__spec__ is not None, "the module was made from its spec"
        module.__loader__ = module.__spec__.loader = self.loader
        with self.around(module):
            self.loader.exec_module(module)


class TranslatingFinder(MetaPathFinder):
    """A finder that translates a module of `packages` if `wanted` returns True for the module's full name."""

    asks_others = True

    def __init__(self, packages: tuple[str, ...], wanted: Callable[[str], bool] = versions.is_translated) -> None:
        self.packages = packages
        self.wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the packages' modules through the other finders."""
        if name.partition(".")[0] not in self.packages or not self.wanted(name):
            return None
        fallback = None
        # Skip finders that, like this finder, query other finders: they would call each other without end.
        finders = (finder for finder in sys.meta_path if not getattr(finder, "asks_others", False))
        for spec in _specs(finders, name, path, target):
            if type(spec.loader) is SourceFileLoader:
                from optdb.host.theano.importing.compat.loader import TranslatingLoader

                spec.loader = TranslatingLoader(spec.loader.name, spec.loader.path)
                spec.cached = None
                return spec
            # A spec with another kind of loader, such as pytest's, is used only if no other finder has a source file to
            # translate.
            fallback = fallback or spec
        return fallback


def _specs(
    finders: Iterable[Any], name: str, path: Sequence[str] | None, target: ModuleType | None
) -> Iterator[ModuleSpec]:
    for finder in finders:
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            yield spec
