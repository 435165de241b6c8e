"""Replaces Theano's ModuleCache, to look up modules by content and build missing modules in batches."""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import logging
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from theano import config
from theano.gof import cmodule
from theano.gof.cmodule import KeyData, ModuleCache

from optdb.files import is_truncated, read_file
from optdb.host.theano.clinker.building import ModuleBuilder, can_build
from optdb.host.theano.clinker.locks import FileLock
from optdb.host.theano.clinker.store import ModuleStore, StoredModule, link
from optdb.host.theano.clinker.units import Translation, module_of

logger = logging.getLogger("optdb.clinker")

MAX_LOCKS = 200
_MAX_KEY_BYTES = 1 << 26

Tell = Callable[[int, int], None]


class Wanted:
    """A module that a function needs: Theano's key for the module, and the module's code."""

    def __init__(self, key: Any, translation: Translation) -> None:
        self.key = key
        self.translation = translation
        self.module_hash = cmodule.get_module_hash(translation.source, key)

    @property
    def is_versioned(self) -> bool:
        """Whether other processes can use the module."""
        return bool(self.key[0])


class SharedModuleCache(ModuleCache):
    """A cache of compiled modules that has no global lock and does not read all keys at the start."""

    def __init__(self, dirname: str, check_for_broken_eq: bool = True, do_refresh: bool = True) -> None:
        super().__init__(dirname, check_for_broken_eq, do_refresh=False)
        self.store = ModuleStore(dirname)
        self._builder = ModuleBuilder(self.store)
        self._foreign: dict[str, Path] = {}
        self._seen_folders: set[str] = set()

    # Methods that Theano calls.

    def module_from_key(self, key: Any, lnk: Any = None, keep_lock: bool = False) -> ModuleType:
        """Return a module; compile it if necessary (see ``ModuleCache``)."""
        module = self._get_from_key(key)
        if module is not None:
            return module
        if not hasattr(lnk, "get_dynamic_module"):
            return super().module_from_key(key, lnk, keep_lock)
        return self.module(Wanted(key, module_of(lnk)), lambda: lnk)

    def refresh(self, age_thresh_use: Any = None, delete_if_problem: bool = False, cleanup: bool = True) -> list[str]:
        """Read all keys if the arguments request a clean-up; otherwise do nothing, because look-ups need no keys."""
        if age_thresh_use is None and not delete_if_problem:
            return []
        return super().refresh(age_thresh_use, delete_if_problem, cleanup)

    def clear_unversioned(self, min_age: Any = None) -> None:
        """Remove the unversioned modules of this process and of dead processes."""
        for module_hash, key_data in list(self.module_hash_to_key_data.items()):
            if any(key[0] for key in key_data.keys) or not key_data.keys:
                continue
            entry = key_data.get_entry()
            key_data.delete_keys_from(self.entry_from_key, do_manual_check=False)
            self.module_from_name.pop(entry, None)
            del self.module_hash_to_key_data[module_hash]
        super().clear_unversioned(min_age)

    def _on_atexit(self) -> None:
        self.store.clean_up(self.age_thresh_del)
        self.store.close()

    # Methods that replace Theano's.

    def module(self, wanted: Wanted, make_linker: Callable[[], Any]) -> ModuleType:
        """Return a module; build it if it is missing. If the batch build fails, compile it as Theano does."""
        module = self._loaded(wanted)
        if module is not None:
            return module
        path = self.find(wanted)
        if path is not None:
            module = self._load_or_discard(wanted, path)
            if module is not None:
                return module
        self.build([wanted])
        path = self.find(wanted)
        if path is None:
            path = self._compile_as_theano(wanted, make_linker())
        return self._load(wanted, path)

    def find(self, wanted: Wanted) -> Path | None:
        """Return the path of a module's shared library, or None."""
        key_data = self.module_hash_to_key_data.get(wanted.module_hash)
        if key_data is not None:
            return Path(key_data.get_entry())
        if not wanted.is_versioned:
            return None
        path = self.store.library(wanted.module_hash, wanted.translation.name)
        return path if path.exists() else self._foreign.get(wanted.module_hash)

    def missing(self, modules: Iterable[Wanted]) -> dict[str, Wanted]:
        """Map hashes to the modules that must be built."""
        missing = {wanted.module_hash: wanted for wanted in modules if self.find(wanted) is None}
        if missing and self._read_foreign():
            missing = {name: wanted for name, wanted in missing.items() if self.find(wanted) is None}
        return {name: wanted for name, wanted in missing.items() if can_build(wanted.translation)}

    def build(self, modules: Iterable[Wanted], tell: Tell | None = None, builder: ModuleBuilder | None = None) -> None:
        """Build the missing modules; skip modules that do not compile.

        `tell` is called with the number of finished modules and the number of missing modules. `builder` replaces the
        cache's builder.
        """
        missing = self.missing(modules)
        total = len(missing)
        while missing:
            locks = self._claim(missing)
            if not locks:
                self._wait_for_others(missing)
                continue
            done = total - len(missing)
            claimed = [missing.pop(name) for name in locks]
            self._build(claimed, locks, _counting_on(tell, done, total), builder or self._builder)

    def _claim(self, missing: dict[str, Wanted]) -> dict[str, FileLock]:
        """Lock the modules that no other process is compiling; drop modules that are already compiled."""
        locks: dict[str, FileLock] = {}
        for name, wanted in list(missing.items()):
            if len(locks) == MAX_LOCKS:
                break
            lock = self.store.lock(name)
            if wanted.is_versioned and not lock.acquire(blocking=False):
                continue
            if self.find(wanted) is None:
                locks[name] = lock
            else:
                lock.release(remove=True)
                del missing[name]
        return locks

    def _wait_for_others(self, missing: dict[str, Wanted]) -> None:
        """Wait until the process that builds the first missing module has finished the build or died."""
        for name, wanted in list(missing.items())[:1]:
            with self.store.lock(name):
                if self.find(wanted) is not None:
                    del missing[name]

    def _build(
        self, modules: list[Wanted], locks: dict[str, FileLock], tell: Tell | None, builder: ModuleBuilder
    ) -> None:
        # Of the modules that differ only in their keys, only one is compiled; the others share its library.
        wanted: dict[Any, list[Wanted]] = {}
        for module in modules:
            wanted.setdefault((module.translation.name, module.translation.environment), []).append(module)

        def done(translation: Translation, library: Path) -> None:
            for module in wanted[translation.name, translation.environment]:
                self._keep(module, library)
                locks[module.module_hash].release(remove=True)

        logger.info("compiling %d modules", len(modules))
        start = time.perf_counter()
        try:
            builder.build([same[0].translation for same in wanted.values()], done, tell)
        finally:
            for lock in locks.values():
                lock.release(remove=True)
        logger.info("compiled %d modules in %.1f s", len(modules), time.perf_counter() - start)

    def _keep(self, wanted: Wanted, library: Path) -> None:
        self.stats[2] += 1
        if wanted.is_versioned:
            translation = wanted.translation
            module = StoredModule(wanted.module_hash, translation.name, translation.source, wanted.key)
            self.store.publish(module, library)
            return
        target = self.store.stage().folder() / f"{wanted.translation.name}.{cmodule.get_lib_extension()}"
        link(library, target)
        (target.parent / "mod.cpp").write_text(wanted.translation.source)
        self._remember(wanted, target)

    def _compile_as_theano(self, wanted: Wanted, linker: Any) -> Path:
        compiler = wanted.translation.environment.compiler
        folder = self.store.stage().folder()
        try:
            compiler.compile_str(
                module_name=wanted.translation.name,
                src_code=wanted.translation.source,
                location=str(folder),
                include_dirs=linker.header_dirs(),
                lib_dirs=linker.lib_dirs(),
                libs=linker.libraries(),
                preargs=linker.compile_args(),
                py_module=False,
            )
        except Exception as error:
            # Add the graph to the error, as CLinker.compile_cmodule does.
            error.args += (str(linker.fgraph),)
            raise
        self._keep(wanted, folder / f"{wanted.translation.name}.{cmodule.get_lib_extension()}")
        path = self.find(wanted)
        assert path is not None, "the module was kept"
        return path

    def _loaded(self, wanted: Wanted) -> ModuleType | None:
        key_data = self.module_hash_to_key_data.get(wanted.module_hash)
        module = None if key_data is None else self.module_from_name.get(key_data.get_entry())
        if module is not None:
            self.stats[0] += 1
        return module

    def _load_or_discard(self, wanted: Wanted, path: Path) -> ModuleType | None:
        """Load a module; if its file is damaged, for example after a power failure, remove it and return None."""
        try:
            return self._load(wanted, path)
        except ImportError as error:
            logger.warning("%s; the module is removed and compiled again", error)
        shutil.rmtree(path.parent, ignore_errors=True)
        key_data = self.module_hash_to_key_data.pop(wanted.module_hash, None)
        for key in () if key_data is None else key_data.keys:
            self.entry_from_key.pop(key, None)
        self._foreign.pop(wanted.module_hash, None)
        return None

    def _load(self, wanted: Wanted, path: Path) -> ModuleType:
        module = load(path)
        self.stats[1] += 1
        self.module_from_name[str(path)] = module
        self._remember(wanted, path)
        return module

    def _remember(self, wanted: Wanted, path: Path) -> None:
        key_data = self.module_hash_to_key_data.get(wanted.module_hash)
        if key_data is None:
            key_data = KeyData(set(), wanted.module_hash, str(path.parent / "key.pkl"), str(path))
            self.module_hash_to_key_data[wanted.module_hash] = key_data
        key_data.keys.add(wanted.key)
        self.entry_from_key[wanted.key] = str(path)

    def _read_foreign(self) -> bool:
        """Find modules that Theano compiled without optdb; return whether any of them are new."""
        before = len(self._foreign)
        try:
            folders = sorted(entry.name for entry in os.scandir(self.dirname) if entry.name.startswith("tmp"))
        except FileNotFoundError:
            return False
        for name in folders:
            if name in self._seen_folders or self.store.is_own(name):
                continue
            key_data = _read_keys(Path(self.dirname, name, "key.pkl"))
            if key_data is None:
                continue
            self._seen_folders.add(name)
            path = Path(self.dirname, name, Path(key_data.get_entry()).name)
            if path.exists() and time.time() - path.stat().st_atime < self.age_thresh_use:
                self._foreign.setdefault(key_data.module_hash, path)
        return len(self._foreign) > before


_caches: dict[str, SharedModuleCache] = {}


def module_cache(dirname: str | None = None, init_args: dict[str, Any] | None = None) -> SharedModuleCache:
    """Return the cache of a compiledir, by default the current one; `init_args` are passed to a new cache."""
    dirname = dirname or config.compiledir
    if dirname not in _caches:
        _caches[dirname] = cache = SharedModuleCache(dirname, **(init_args or {}))
        atexit.register(cache._on_atexit)
    return _caches[dirname]


def _counting_on(tell: Tell | None, done: int, total: int) -> Tell | None:
    return None if tell is None else lambda number, _: tell(done + number, total)


def _read_keys(path: Path) -> KeyData | None:
    """Return a module's keys; None if they cannot be read, for example because an op's class is missing."""
    try:
        key_data = pickle.loads(read_file(path, _MAX_KEY_BYTES))
    except Exception as error:
        # Unpickling may raise any exception; Theano then ignores the module.
        logger.debug("the keys of %s cannot be read: %s", path, error)
        return None
    return key_data if isinstance(key_data, KeyData) else None


def load(path: Path) -> ModuleType:
    """Load a compiled module under the name that Theano gives it."""
    if is_truncated(path):
        raise ImportError(f"{path}: the file is incomplete", path=str(path))
    name = f"{path.parent.name}.{path.stem}"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader, origin=str(path))
    assert spec is not None, "a loader of extensions knows its file's name"
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module
