"""Theano works whether it is imported after optdb or before it."""

from __future__ import annotations

import sys

import pytest

from tests.processes import output, run_code, with_extensions

#: Extensions that Theano compiles when it is imported.
WITHOUT_SCAN = ("cutils_ext", "lazylinker_ext")

LDFLAGS = "import optdb, theano; print(repr(theano.config.blas.ldflags))"


@pytest.fixture(scope="module")
def no_blas(tmp_path_factory):
    """Return settings with a compiler that fails to link with a BLAS."""
    folder = tmp_path_factory.mktemp("bin")
    compiler = folder / "g++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *blas*) exit 1;; esac\nexec /usr/bin/env -S c++ "$@"\n')
    compiler.chmod(0o755)
    return {"flags": f"cxx={compiler}"}


@pytest.mark.slow
def test_theano_imports_in_silence():
    assert output("import optdb, theano; print(theano.__version__)") == "1.0.5"


@pytest.mark.slow
def test_theano_shows_its_own_loader():
    shown = output(
        "import optdb, theano; print(theano.__spec__.loader, theano.__loader__, theano.__loader__.get_source)"
    )
    assert shown.count("_AroundLoader") == 0
    assert "SourceFileLoader" in shown or shown.count("TranslatingLoader") >= 2


@pytest.mark.slow
def test_users_own_ldflags_win():
    assert output(LDFLAGS, flags="blas.ldflags=-lmine") == "'-lmine'"


@pytest.mark.slow
def test_users_own_ldflags_in_theanorc_win(tmp_path):
    (tmp_path / "rc").write_text("[blas]\nldflags = -lmine\n")
    assert output(LDFLAGS, env={"THEANORC": str(tmp_path / "rc")}) == "'-lmine'"


@pytest.mark.slow
def test_without_a_blas_there_is_no_warning(no_blas):
    assert output(LDFLAGS, **no_blas) == "''"


@pytest.mark.slow
def test_a_user_who_chose_no_blas_is_told_what_it_means():
    assert "NumPy C-API" in run_code(LDFLAGS, flags="blas.ldflags=").stderr


@pytest.mark.slow
def test_without_a_compiler_nothing_is_tried():
    code = """
        import optdb
        from optdb.host.theano.importing import blas_fallback
        blas_fallback.links = None  # would raise if it were called
        import theano
        print(repr(theano.config.blas.ldflags))
    """
    # Theano itself warns on stderr about the missing compiler.
    assert run_code(code, flags="cxx=").stdout.strip() == "''"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["flag", "later"])
def test_mode_takes_the_name_topo(when):
    code = "import optdb, theano; theano.config.mode = 'TOPO'; print(type(theano.compile.get_default_mode()).__name__)"
    if when == "flag":
        code = code.replace("theano.config.mode = 'TOPO'; ", "")
    assert output(code, flags="mode=TOPO" if when == "flag" else "") == "TopoMode"


def test_mode_takes_no_other_new_name():
    assert "mode=TOPOS: no such mode; did you mean TOPO?" in run_code("import optdb, theano", flags="mode=TOPOS").stderr


@pytest.mark.slow
def test_scan_runs_its_c_code(tmp_path):
    code = """
        import sys
        import optdb, theano
        import theano.tensor as T
        n, x = T.iscalar(), T.vector()
        powers, _ = theano.scan(lambda power: power * x, outputs_info=T.ones_like(x), n_steps=n)
        f = theano.function([x, n], powers[-1])
        print(f([0, 1, 2], 3), "theano.scan_module.scan_perform_ext" in sys.modules)
    """
    flags = f"base_compiledir={with_extensions(tmp_path, WITHOUT_SCAN)}"
    assert output(code, flags=flags) == "[0. 1. 8.] True"


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the header moved in Python 3.11")
def test_header_folder_is_there_for_scan_only(tmp_path):
    code = """
        import optdb, theano
        from theano.gof import cmodule
        before = cmodule.std_include_dirs()
        seen = []
        cmodule.GCC_compiler.compile_str = lambda *a, **k: seen.extend(cmodule.std_include_dirs()) or 1 / 0
        try:
            import theano.scan_module.scan_perform_ext
        except (ZeroDivisionError, ImportError):
            pass
        print([folder for folder in seen if folder not in before], cmodule.std_include_dirs() == before)
    """
    done = output(code, flags=f"base_compiledir={with_extensions(tmp_path, WITHOUT_SCAN)}")
    folder = {(3, 10): "[]", (3, 11): "py311"}.get(sys.version_info[:2], "py312")
    assert folder in done
    assert done.endswith("True")
