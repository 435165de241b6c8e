"""Most tests of the cache of modules start no compiler."""

from __future__ import annotations

import _ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest
import theano  # must be imported before its submodules

from optdb.files import is_truncated
from optdb.host.theano.clinker.cache import SharedModuleCache
from tests.processes import run_code


class Compiler:
    """A fake compiler that returns a separate library for each requested translation."""

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


COMPILE_AND_CALL = """
    import optdb
    import theano
    import theano.tensor as tt

    x = tt.dvector("x")
    with optdb.enable():
        print(theano.function([x], tt.exp(x) - 1)([0]))
"""


@pytest.mark.thorough_cases("empty")
@pytest.mark.slow
@pytest.mark.skipif(not theano.config.cxx, reason="needs a C compiler")
@pytest.mark.parametrize("kept", [0.0, 0.5], ids=["empty", "half"])
def test_a_module_whose_file_is_broken_is_compiled_again(tmp_path, kept):
    """A computer that loses power can leave incomplete files."""
    flags = f"base_compiledir={tmp_path}"
    assert run_code(COMPILE_AND_CALL, flags=flags).returncode == 0
    for path in tmp_path.glob("*/*/*.so"):
        content = path.read_bytes()
        path.unlink()  # the modules of a unit are hard links to one file
        path.write_bytes(content[: int(kept * len(content))])
    done = run_code(COMPILE_AND_CALL, flags=flags)
    assert (done.returncode, done.stdout) == (0, "[0.]\n")
    assert "the module is removed and compiled again" in done.stderr
    done = run_code(COMPILE_AND_CALL, flags=flags)
    assert (done.stdout, done.stderr) == ("[0.]\n", "")


def test_a_file_without_its_end_is_truncated(tmp_path):
    library = Path(_ctypes.__file__)
    assert not is_truncated(library)
    content = library.read_bytes()
    part = tmp_path / "part.so"
    for size in (64, len(content) // 2, len(content) - 1):
        part.write_bytes(content[:size])
        assert is_truncated(part) == content.startswith(b"\x7fELF\x02\x01")
    part.write_bytes(b"short")
    assert is_truncated(part)
    part.write_bytes(b"of another format" * 10)
    assert not is_truncated(part)
