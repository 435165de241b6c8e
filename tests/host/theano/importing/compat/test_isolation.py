"""Only Theano sees the effects of the compatibility layer."""

from __future__ import annotations

import pytest

from tests.processes import output

# Suppress Theano's warning that there is no compiler.
QUIETLY = {"flags": "cxx=", "env": {"PYTHONWARNINGS": "ignore"}}

# Submodules that Theano imports become attributes of their packages; nothing else may appear.
LOOK = """
import builtins, collections, configparser, inspect, sys, types, unittest, warnings
warnings.simplefilter("ignore")
import numpy, numpy.linalg, numpy.testing, scipy

WATCHED = [builtins, collections, configparser, inspect, numpy, numpy.linalg, numpy.testing, scipy, unittest.TestCase]

def look():
    return {
        (watched.__name__, name): value
        for watched in WATCHED
        for name, value in vars(watched).items()
        if not isinstance(value, types.ModuleType) and not name.startswith("__")
    }

def modules():
    names = ("distutils", "imp", "numpy.distutils", "pkg_resources", "nose")
    return {name: sys.modules.get(name) for name in names}
"""


@pytest.mark.slow
def test_theano_changes_nothing_for_others():
    code = LOOK + (
        "there = modules()\n"
        "options = numpy.get_printoptions()\n"
        "import optdb\n"
        "before = look()\n"
        "import theano, theano.tensor as tt\n"
        "x = tt.fvector(); theano.function([x], (x * 0.5 + 1).sum(), mode='FAST_COMPILE')([1, 2])\n"
        "after = look()\n"
        "print(sorted(key for key in {*before, *after} if before.get(key, 0) is not after.get(key, 1)))\n"
        "print(numpy.get_printoptions() == options)\n"
        "from optdb.host.theano.importing.compat import versions\n"
        "print([n for n in modules() if modules()[n] is not there[n]] if versions.needs_translation() else [])\n"
    )
    assert output(code, **QUIETLY).splitlines() == ["[]", "True", "[]"]


@pytest.mark.slow
def test_theano_s_names_are_its_own():
    code = """
        import optdb, theano.tensor.basic, theano.configparser, theano.gof.utils, numpy
        from optdb.host.theano.importing.compat import versions
        print(theano.tensor.basic.np is numpy, versions.needs_translation())
    """
    assert output(code, **QUIETLY) in ("True False", "False True")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["theano.tensor.basic", "theano.gof.op"])
def test_tracebacks_show_theano_s_source(name):
    code = f"""
        import optdb, importlib, inspect
        module = importlib.import_module({name!r})
        print(inspect.getsource(module) == open(module.__file__).read())
    """
    assert output(code, **QUIETLY) == "True"
