"""optdb searches for a BLAS by linking with several libraries."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from optdb import user_cache
from optdb.host.theano.importing import blas_fallback


@pytest.fixture
def linker(monkeypatch, tmp_path):
    """A fake compiler: ``linker.works`` determines which options link, and ``linker.tried`` records the attempts."""

    class Linker:
        works: tuple[str, ...] = ()

        def __init__(self):
            self.tried = []

        def links(self, compiler, flags):
            self.tried.append(next(iter(flags)))
            return self.tried[-1] in self.works

    linker = Linker()
    monkeypatch.setattr(blas_fallback, "links", linker.links)
    monkeypatch.setattr(user_cache, "cache_dir", lambda: tmp_path / "cache")
    return linker


def test_the_first_that_links_is_taken(linker):
    linker.works = ("-lopenblas", "-lblas")
    assert blas_fallback.ldflags("g++", "12") == "-lopenblas"
    assert linker.tried == ["-lopenblas"]


def test_the_second_is_taken_where_the_first_does_not_link(linker):
    linker.works = ("-lblas",)
    assert blas_fallback.ldflags("g++", "12") == "-lblas"


@pytest.mark.parametrize("works", [(), ("-lblas",)])
def test_the_answer_is_kept(linker, works):
    linker.works = works
    first = blas_fallback.ldflags("g++", "12")
    tried = len(linker.tried)
    assert blas_fallback.ldflags("g++", "12") == first
    assert len(linker.tried) == tried


def test_another_compiler_is_asked_again(linker):
    linker.works = ("-lblas",)
    blas_fallback.ldflags("g++", "12")
    linker.works = ("-lopenblas",)
    assert blas_fallback.ldflags("g++", "13") == "-lopenblas"
    assert blas_fallback.ldflags("clang++", "12") == "-lopenblas"


def test_a_library_installed_later_is_found(linker, tmp_path):
    assert blas_fallback.ldflags("g++", "12", [str(tmp_path)]) == ""
    linker.works = ("-lopenblas",)
    (tmp_path / "libopenblas.so").touch()
    assert blas_fallback.ldflags("g++", "12", [str(tmp_path)]) == "-lopenblas"


def test_a_cache_that_cannot_be_written_is_no_failure(linker, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(user_cache, "cache_dir", lambda: tmp_path / "file" / "cache")
    linker.works = ("-lblas",)
    assert blas_fallback.ldflags("g++", "12") == "-lblas"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_compiler_that_is_not_there_links_nothing():
    assert not blas_fallback.links("no-such-compiler", ["-lblas"])


def test_a_library_that_is_not_there_does_not_link():
    assert not blas_fallback.links("g++", ["-lno-such-library"])


def test_functions_that_come_later_are_pickled():
    """Theano stores BLAS functions in the tags of nodes without C code; SciPy's own functions cannot be pickled."""
    import scipy.linalg.blas
    from theano.tensor.blas_scipy import _blas_ger_fns

    ger = pickle.loads(pickle.dumps(_blas_ger_fns[np.dtype("float64")]))
    x, y = np.arange(2.0), np.arange(3.0)
    np.testing.assert_array_equal(ger(2.0, x, y), scipy.linalg.blas.dger(2.0, x, y))


def test_nothing_links_where_a_program_has_no_room(monkeypatch):
    def refuse(**options):
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(blas_fallback.tempfile, "TemporaryDirectory", refuse)
    assert not blas_fallback.links("c++", ["-lblas"])
