"""optdb's header is used for the C code that needs it, and the keys of modules depend on it."""

from __future__ import annotations

import types

import pytest

from optdb.host.theano.importing.compat import ccode, versions


@pytest.fixture
def cmodule():
    """A stand-in for theano.gof.cmodule."""

    class Compiler:
        @staticmethod
        def compile_args(march_flags=True):
            return ["-O3"]

        @staticmethod
        def compile_str(*args):
            return args

        @classmethod
        def _try_compile_tmp(cls, src_code, tmp_prefix, flags, try_run, output, compiler, comp_args):
            return [*(cls.compile_args() if comp_args else []), *flags]

    return types.SimpleNamespace(GCC_compiler=Compiler, std_include_dirs=lambda: ["numpy"])


@pytest.fixture
def header(monkeypatch):
    """Let the test decide whether the header is needed."""

    def needed(answer):
        monkeypatch.setattr(versions, "needs_header", lambda: answer)
        ccode.compile_args.cache_clear()

    yield needed
    ccode.compile_args.cache_clear()


def test_where_no_header_is_needed_nothing_is_added(cmodule, header):
    header(False)
    args = cmodule.GCC_compiler.compile_args
    ccode.install(cmodule)
    assert cmodule.GCC_compiler.compile_args is args
    assert cmodule.std_include_dirs() == ["numpy"]


@pytest.mark.parametrize(("numpy", "folders"), [((1, 26), 1), ((2, 0), 2)])
def test_the_header_is_included_and_part_of_keys(cmodule, header, monkeypatch, numpy, folders):
    header(True)
    monkeypatch.setattr(versions, "installed", lambda package: numpy)
    ccode.install(cmodule)
    args = cmodule.GCC_compiler.compile_args(march_flags=False)
    assert args[0] == "-O3"
    assert "-includetheano_compat.h" in args
    assert any(argument.startswith("-DOPTDB_COMPAT=0x") for argument in args)
    assert not any("/" in argument for argument in args), "keys are not to depend on where optdb lies"
    ours = [str(ccode.INCLUDE_DIR), str(ccode.NUMPY_2_DIR)]
    assert cmodule.std_include_dirs() == ["numpy", *ours[:folders]]


@pytest.mark.parametrize(
    ("version", "needed"), [((1, 23, 5), False), ((1, 26, 4), False), ((2, 0, 0), True), ((2, 5, 5), True)]
)
def test_numpy_s_version_decides(monkeypatch, version, needed):
    monkeypatch.setattr("sys.version_info", (3, 11, 0))
    monkeypatch.setattr(versions, "installed", lambda package: version)
    assert versions.needs_header() is needed
    assert versions.needs_promotion() is needed


def test_scan_s_source_reads_dtypes_by_macros(cmodule, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda package: (2, 5))
    before = cmodule.GCC_compiler.compile_str
    with ccode.compiling_scan(cmodule):
        compiled = cmodule.GCC_compiler.compile_str(
            "name", "__pyx_v_d->subarray->shape; __pyx_v_descr->names; x->names"
        )
    assert compiled[1] == "PyDataType_SUBARRAY(__pyx_v_d)->shape; PyDataType_NAMES(__pyx_v_descr); x->names"
    assert cmodule.GCC_compiler.compile_str is before
    assert cmodule.std_include_dirs() == ["numpy"]


def test_scan_goes_on_in_python_where_its_source_does_not_compile(cmodule, monkeypatch):
    def fail(*args):
        raise Exception("Compilation failed")

    monkeypatch.setattr(versions, "installed", lambda package: (2, 5))
    cmodule.GCC_compiler.compile_str = staticmethod(fail)
    with ccode.compiling_scan(cmodule), pytest.raises(ImportError, match="Compilation failed"):
        cmodule.GCC_compiler.compile_str("name", "source")


def test_trial_programs_are_compiled_without_the_header(cmodule, header):
    header(True)
    ccode.install(cmodule)
    trial = cmodule.GCC_compiler._try_compile_tmp
    assert trial("source", flags=["-fopenmp"], compiler="g++") == ["-O3", "-fopenmp"]
    assert trial("source", flags=["-fopenmp"], compiler="g++", comp_args=False) == ["-fopenmp"]
