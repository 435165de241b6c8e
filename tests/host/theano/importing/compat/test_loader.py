"""Translated modules are stored on disk, and translated again where necessary."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

import pytest

from optdb.host.theano.importing.compat import loader, translation
from optdb.host.theano.importing.finders import TranslatingFinder

SOURCE = "import numpy as np\nvalue = np.bool\n"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Store translated modules in a folder that belongs to one test; return the folder."""
    folder = tmp_path / "kept"
    monkeypatch.setattr(loader, "_folder", folder)
    return folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package whose modules optdb translates; yield its folder."""
    name = "optdb_translated_package"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    finder = TranslatingFinder((name,), wanted=lambda name: True)
    sys.meta_path.insert(0, finder)
    yield folder
    sys.meta_path.remove(finder)
    sys.modules.pop(name, None)


@pytest.fixture
def translated(monkeypatch):
    """Return a list that receives the name of each translated file."""
    files = []
    real = translation.translate
    monkeypatch.setattr(translation, "translate", lambda *args: files.append(args[1]) or real(*args))
    return files


def load(package):
    """Import the package again."""
    sys.modules.pop(package.name, None)
    importlib.invalidate_caches()
    return importlib.import_module(package.name)


def test_a_module_is_translated_once(kept, package, translated):
    assert load(package).value is bool
    assert load(package).value is bool
    assert len(translated) == 1
    assert len(list(kept.iterdir())) == 1


def test_a_changed_source_is_translated_again(kept, package, translated):
    load(package)
    (package / "__init__.py").write_text(SOURCE + "more = 1\n")
    assert load(package).more == 1
    os.utime(package / "__init__.py", (1, 1))
    load(package)
    assert len(translated) == 3


def test_a_module_s_doubtful_syntax_is_not_reported(kept, package, recwarn):
    """Python's parser would warn about the escape, and its compiler about the comparison."""
    (package / "__init__.py").write_text("escaped = '\\d'\nequal = escaped is 0\n")
    assert load(package).escaped == "\\d"
    assert [warning for warning in recwarn.list if issubclass(warning.category, SyntaxWarning)] == []


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_what_is_kept_may_be_broken(kept, package, content):
    load(package)
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-5] if content is None else content)
    assert load(package).value is bool


def test_each_byte_of_what_is_kept_may_be_broken(kept, package, translated):
    """Changed bytes in stored files do no harm; Python's own reader of code objects would crash on some of them."""
    load(package)
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    for position in range(0, len(whole), 7):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        assert load(package).value is bool
        assert file.read_bytes() == whole
    assert len(translated) == 1 + len(range(0, len(whole), 7))


def test_what_is_kept_may_be_a_fifo(kept, package):
    load(package)
    (path,) = kept.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert load(package).value is bool
    assert path.is_file()


def test_the_folder_need_not_be_writable(kept, package, translated, caplog):
    kept.write_text("a file where the folder should be")
    assert load(package).value is bool
    assert load(package).value is bool
    assert len(translated) == 2
    (record,) = caplog.records
    assert str(kept) in record.getMessage()
    assert "export XDG_CACHE_HOME=FOLDER" in record.getMessage()


def test_another_version_of_the_translation_keeps_its_own(monkeypatch):
    before = loader.cache_dir()
    monkeypatch.setattr(translation, "table_digest", lambda: "another")
    assert loader.cache_dir() != before


def test_other_packages_are_left_alone(package):
    finder = TranslatingFinder((package.name,), wanted=lambda name: True)
    assert finder.find_spec("json") is None
    assert finder.find_spec(package.name + "_more") is None
    assert TranslatingFinder((package.name,), wanted=lambda name: False).find_spec(package.name) is None


def test_a_module_that_is_not_there(package):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package.name}.nothing")


def test_a_finder_that_loads_in_its_own_way_gives_way(package):
    class Rewriting:
        """A loader that rewrites modules, like pytest's for test modules."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == package.name:
                return importlib.util.spec_from_loader(name, Rewriting(), origin="elsewhere")
            return None

    sys.meta_path.insert(1, Rewriting)
    try:
        assert load(package).value is bool
    finally:
        sys.meta_path.remove(Rewriting)
