"""Importing optdb, and then Theano, installs and imports only the parts of optdb that are needed."""

from __future__ import annotations

import pytest

from optdb.host.theano.importing.compat import versions
from tests.processes import output, run_code

#: A program that prints the imported folders of optdb, and the imported modules directly in optdb.
PARTS = "print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('optdb.')}))"


def test_import_of_optdb_imports_what_waits_for_theano_alone():
    assert output(f"import sys, optdb; {PARTS}") == "composition"


@pytest.mark.slow
def test_import_of_theano_brings_the_engine_but_no_device():
    assert (
        output(f"import sys, optdb, theano; {PARTS}")
        == "callers collector composition files flags host json_text refcounting topo trace_log unknown_names "
        "user_cache"
    )


@pytest.mark.slow
def test_a_device_brings_what_it_needs():
    imported = output(f"import sys, optdb, theano; {PARTS}", flags="optdb.contexts=dev0->opencl0:0").split()
    assert {"codegen", "lifters", "opencl", "runtime"} <= {*imported}


@pytest.mark.slow
def test_op_cache_is_on_where_the_flag_says_so():
    code = "import optdb, theano; print(optdb.cache.is_installed(), optdb.topo.is_enabled())"
    assert output(code, flags="optdb.op_cache=True") == "True False"


@pytest.mark.slow
def test_engine_is_on_where_the_flag_says_so():
    code = """
        import optdb, theano
        from optdb.topo import is_enabled
        print(is_enabled())
    """
    assert output(code, flags="optdb.topo=True") == "True"
    assert output(code) == "False"


@pytest.mark.slow
@pytest.mark.skipif(versions.needs_translation(), reason="Theano alone does not import here")
def test_engine_is_on_where_theano_came_first():
    code = """
        import theano, optdb
        from optdb.topo import is_enabled
        print(is_enabled(), theano.config.optdb.topo)
    """
    done = run_code(code, flags="blas.ldflags=-lmine,optdb.topo=True")
    assert done.stdout.strip() == "True True"


@pytest.mark.slow
def test_a_reload_does_nothing():
    code = """
        import importlib, sys
        import optdb
        importlib.reload(optdb)
        import theano
        optdb.enable()
        finders = list(sys.meta_path)
        importlib.reload(optdb)
        assert sys.meta_path == finders
        assert optdb.topo.is_enabled()
        optdb.disable()
        importlib.reload(optdb)
        assert not optdb.topo.is_enabled()
        x = theano.tensor.dvector()
        print(theano.function([x], x + 1, mode=optdb.mode(theano.Mode("py", "fast_run")))([1])[0])
    """
    assert output(code, flags="optdb.topo=True") == "2.0"


def test_an_import_of_codegen_brings_no_host():
    imported = output(f"import sys, optdb.codegen.sorting; {PARTS}").split()
    assert {"codegen", "runtime"} <= {*imported}
    assert not {"host", "opencl", "lifters", "topo", "cache"} & {*imported}


def test_the_import_hook_waits_for_all_that_the_host_translates():
    from optdb import composition
    from optdb.host.theano.importing.compat import libraries

    assert {*composition.HOSTS} == {"theano", *libraries.PACKAGES}
