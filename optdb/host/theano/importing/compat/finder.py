"""Finds the modules that `loader` translates, and imports `loader` on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

from optdb.host.theano.importing.compat import versions


class TranslatingFinder(MetaPathFinder):
    """A finder whose modules are translated when they are loaded.

    Parameters
    ----------
    packages : tuple of str
        The packages whose modules are translated.
    wanted : callable
        Called with the full name of one of their modules; returns whether to translate it.
    """

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
        for spec in self._ask_others(name, path, target):
            if type(spec.loader) is SourceFileLoader:
                from optdb.host.theano.importing.compat.loader import TranslatingLoader

                spec.loader = TranslatingLoader(spec.loader.name, spec.loader.path)
                spec.cached = None
                return spec
            # A loader of another kind, such as pytest's for tests, is used only if no finder has source to translate.
            fallback = fallback or spec
        return fallback

    def _ask_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> Iterator[ModuleSpec]:
        for finder in sys.meta_path:
            # Other finders that query the rest, like this one, would recurse into this one.
            if isinstance(finder, TranslatingFinder) or getattr(finder, "asks_others", False):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                yield spec
