"""The cache of modules, with a compiler that is not started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import theano  # noqa: F401 (before what is a part of its import)

from optdb.host.clinker.cache import SharedModuleCache


class Compiler:
    """Gives a library of its own to each translation that it is asked for."""

    def __init__(self):
        self.translations = []

    def build(self, translations, done, tell=None):
        self.translations += translations
        for number, translation in enumerate(translations):
            done(translation, Path(f"{number}.so"))


def module(module_hash, name, environment):
    translation = SimpleNamespace(name=name, environment=environment)
    return SimpleNamespace(module_hash=module_hash, translation=translation)


def test_modules_of_the_same_code_are_compiled_once_for_each_set_of_flags(tmp_path, monkeypatch):
    cache, compiler, kept, released = SharedModuleCache(str(tmp_path)), Compiler(), {}, []
    monkeypatch.setattr(cache, "_keep", lambda wanted, library: kept.update({wanted.module_hash: library.name}))
    modules = [module("a", "m", "-O1"), module("b", "m", "-O1"), module("c", "m", "-O2"), module("d", "n", "-O1")]
    locks = {
        wanted.module_hash: SimpleNamespace(release=lambda remove, name=wanted.module_hash: released.append(name))
        for wanted in modules
    }
    cache._build(modules, locks, lambda done, total: None, compiler)
    assert len(compiler.translations) == 3
    assert kept == {"a": "0.so", "b": "0.so", "c": "1.so", "d": "2.so"}
    assert set(released) == {"a", "b", "c", "d"}
