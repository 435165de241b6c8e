"""Libraries that use Theano can import names that newer packages have removed; other code does not see these names."""

from __future__ import annotations

import importlib.metadata
import runpy
import sys
import textwrap
from unittest import mock

import pytest

from optdb.host.theano.importing.compat import libraries, translation, versions
from optdb.host.theano.importing.compat.libraries import LIBRARIES, Library
from optdb.host.theano.importing.compat.modules._falling_back import Optional
from tests.processes import output, python_path, run_code

#: These imports and uses, which libraries contain, fail with current Python and NumPy versions without optdb.
SOURCE = """
import collections, inspect
import numpy as np, numpy.testing
import pkg_resources
from collections import Mapping
from inspect import getargspec
from numpy import asscalar
from numpy.testing import Tester

assert issubclass(dict, Mapping) and collections.Iterable
assert getargspec(lambda a, *b, **c: 0).args == ["a"]
assert asscalar(np.array([3])) == 3 and np.int is int and np.NaN != np.NaN
assert np.product([2, 3]) == 6
half = np.float32(0.5) * 0.5
version = pkg_resources.get_distribution(DISTRIBUTION).version

def pick(array, index):
    return array[index]

assert pick(np.ones((3, 4)), [slice(2), Ellipsis]).shape == (2, 4)
"""

#: A program that checks that other packages do not see the names.
CHECK = """
import collections, inspect, numpy, sys
assert not any(hasattr(collections, name) for name in ("Mapping", "Iterable"))
assert "asscalar" not in vars(numpy) or numpy.lib.NumpyVersion(numpy.__version__) < "1.23.0"
assert sys.version_info < (3, 11) or not hasattr(inspect, "getargspec")
assert not hasattr(sys.modules.get("theano.tensor.signal"), "downsample")
"""

QUIETLY = {"flags": "cxx=", "env": {"PYTHONWARNINGS": "ignore"}}


def fake(folder, library, version, source=SOURCE):
    """Write a package with a library's name and version to a folder."""
    package = folder / library.package
    package.mkdir()
    (package / "__init__.py").write_text(f"DISTRIBUTION = {library.distribution!r}\n")
    (package / "inner.py").write_text(f"DISTRIBUTION = {library.distribution!r}\n" + textwrap.dedent(source))
    info = folder / f"{library.distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library.distribution}\nVersion: {version}\n")
    return {"flags": "cxx=", "env": {"PYTHONPATH": python_path(folder), "PYTHONWARNINGS": "ignore"}}


def named(distribution):
    return next(library for library in LIBRARIES if library.distribution == distribution)


def first(library):
    return ".".join(map(str, library.first))


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.distribution)
def test_a_library_imports_names_that_were_removed(tmp_path, library):
    options = fake(tmp_path, library, first(library))
    code = f"import optdb\nfrom {library.package} import inner\nprint(inner.version, inner.half.dtype)\n" + CHECK
    assert output(code, **options) == f"{first(library)} float64"


@pytest.mark.slow
def test_another_module_imports_none_of_them(tmp_path):
    library = Library("another", "another", (1,), (2,))
    options = fake(tmp_path, library, "1.0", "from collections import Mapping")
    fake(tmp_path, LIBRARIES[0], first(LIBRARIES[0]))
    done = run_code(f"import optdb, {LIBRARIES[0].package}.inner\nimport another.inner", **options)
    assert "cannot import name 'Mapping'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.2.9", "2.4.0", "3.6.0"])
def test_other_versions_are_left_alone(tmp_path, version):
    options = fake(tmp_path, named("Keras"), version, "import numpy, collections as used")
    code = "import optdb, keras.inner, numpy, collections\n"
    code += "print(keras.inner.used is collections, keras.inner.numpy is numpy, type(keras.__loader__).__name__)"
    assert output(code, **options) == "True True SourceFileLoader"


def test_versions(monkeypatch):
    installed = {}
    monkeypatch.setattr(versions, "installed", lambda name: installed.get(name, ()))
    assert not libraries.is_translated("lasagne.layers")
    for version, is_supported in {(0, 0, 9): False, (0, 1): True, (0, 2): True, (0, 3): False}.items():
        installed["Lasagne"] = version
        assert libraries.is_translated("lasagne.layers") == is_supported
    assert not libraries.is_translated("lasagne_more")
    assert named("pymc3").supported == ">=3.9,<3.10"


def test_a_package_may_be_installed_while_the_program_runs(tmp_path, monkeypatch):
    assert versions.installed("optdb_later") == ()
    info = tmp_path / "optdb_later-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: optdb_later\nVersion: 1.2.dev3\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert versions.installed("optdb_later") == (1, 2)


def test_versions_are_those_that_python_finds(tmp_path, monkeypatch):
    def add(folder, name, version):
        (tmp_path / folder / name).mkdir(parents=True)
        metadata = "PKG-INFO" if name.endswith("egg-info") else "METADATA"
        (tmp_path / folder / name / metadata).write_text(f"Metadata-Version: 2.1\nName: x\nVersion: {version}\n")

    add("first", "Optdb_Named.Oddly-1.5.dist-info", "1.5")
    add("first", "optdb_old-2.egg-info", "2.0")
    (tmp_path / "first" / "optdb_removed-3.dist-info").mkdir()
    add("second", "optdb_named_oddly-1.4.dist-info", "1.4")
    for folder in ("second", "missing", "first"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    names = ("optdb-named-oddly", "optdb_old", "optdb_removed", "numpy", "scipy")
    read = {name: versions.version_text(name) for name in names}
    assert read == {
        "optdb-named-oddly": "1.5",
        "optdb_old": "2.0",
        "optdb_removed": None,
        "numpy": importlib.metadata.version("numpy"),
        "scipy": importlib.metadata.version("scipy"),
    }


@pytest.mark.parametrize("error", [KeyError("Version"), FileNotFoundError("No package metadata was found.")])
def test_a_backport_of_importlib_metadata_raises_for_a_missing_version(monkeypatch, error):
    # A library may import importlib_metadata, which replaces Python's metadata finder, and raises its own error.
    monkeypatch.setattr(importlib.metadata, "version", mock.Mock(side_effect=error))
    assert versions.version_text("optdb_removed") is None


def test_downsample_pools_as_in_theano_07():
    import theano.tensor as tt
    from theano.tensor import signal
    from theano.tensor.signal.pool import Pool

    from optdb.host.theano.importing.compat.modules.libraries import theano_signal

    x = tt.dtensor4("x")
    node = theano_signal.downsample.max_pool_2d(x, (2, 2), st=(2, 1)).owner
    assert node.op == Pool(ignore_border=False, mode="max", ndim=2)
    assert [value.eval().tolist() for value in node.inputs[1:]] == [[2, 2], [2, 1], [0, 0]]
    assert theano_signal.__doc__ != signal.__doc__
    assert theano_signal.pool is signal.pool


@pytest.mark.slow
def test_lasagne_imports_downsample(tmp_path):
    source = """
    from theano.tensor.signal import downsample
    import theano.tensor.signal.downsample as another
    assert another is downsample and downsample.max_pool_2d
    """
    done = output(
        "import optdb, lasagne.inner\nprint('imported')\n" + CHECK, **fake(tmp_path, named("Lasagne"), "0.1", source)
    )
    assert done == "imported"


@pytest.mark.slow
def test_pymc3_imports_without_arviz(tmp_path):
    (tmp_path / "arviz").mkdir()
    (tmp_path / "arviz" / "__init__.py").write_text("import numpy\nnumpy.removed_for_a_test\n")
    (tmp_path / "xarray.py").write_text("import missing_package\n")
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "__init__.py").touch()
    (tmp_path / "packaging" / "version.py").write_text("parse = int\n")
    source = """
    import arviz, xarray
    import arviz as az
    import packaging
    assert packaging.version.parse("3") == 3
    from arviz import InferenceData
    from xarray import Dataset
    assert az.plots.__all__ == [] and not isinstance(3, (InferenceData, Dataset))
    assert not hasattr(arviz.from_pymc3(None), "posterior")
    for call in (az.plot_trace, lambda: az.from_pymc3(None, save_warmup=True), xarray.open_dataset):
        try:
            call()
        except NotImplementedError as error:
            print(error)
    """
    code = "import optdb, sys, pymc3.inner\nprint(sorted({'arviz', 'xarray'} & set(sys.modules)))"
    lines = output(code, **fake(tmp_path, named("pymc3"), "3.9.3", source)).splitlines()
    assert lines[0].startswith(
        "arviz.plot_trace is not available: arviz does not import here (AttributeError: module 'numpy'"
    )
    assert lines[1].startswith('The cure: pip install "arviz<0.12"')
    assert lines[2].startswith("arviz.from_pymc3 is not available")
    assert lines[4] == "xarray.open_dataset is not available: xarray needs missing_package."
    assert lines[6:] == ["[]"]


#: A stub of arviz 0.12 to 0.23 with the parts that PyMC3 uses in these tests.
ARVIZ = """
__version__ = "{0}"

class plots:
    __all__ = ["plot_trace"]

class InferenceData(dict):
    pass

def plot_trace(data, name):
    return f"plotted {{data}} {{name}}"

def from_dict(posterior, coords=None):
    posterior = posterior.get("posterior", posterior) if __version__[0] == "1" else posterior
    return InferenceData({{name: values.tolist() for name, values in posterior.items()}}, coords=coords)
"""

TRACE = """
import arviz
from pymc3.backends.base import MultiTrace

print(arviz.plot_trace(MultiTrace(), name="a"))
print(arviz.plots.plot_trace(3, "a"), arviz.plots.__all__, arviz.InferenceData.__module__)
print(arviz.from_pymc3(MultiTrace(), coords={"c": 1}))
"""

BASE = """
import numpy as np

class MultiTrace:
    varnames = ["a", "b_log__"]

    def get_values(self, name, combine, squeeze):
        return [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.23.4", "1.3.0"])
def test_pymc3_uses_the_arviz_that_is_installed(tmp_path, version):
    (tmp_path / "arviz.py").write_text(ARVIZ.format(version))
    options = fake(tmp_path, named("pymc3"), "3.9.3", TRACE)
    (tmp_path / "pymc3" / "util.py").write_text(
        "def get_default_varnames(names, include_transformed):\n    return [n for n in names if n[-2:] != '__']\n"
    )
    (tmp_path / "pymc3" / "backends").mkdir()
    (tmp_path / "pymc3" / "backends" / "base.py").write_text(BASE)
    draws = "{'a': [[1.0, 2.0], [3.0, 4.0]], 'coords': %s}"
    assert output("import optdb, pymc3.inner", **options).splitlines() == [
        f"plotted {draws % None} a",
        "plotted 3 a ['plot_trace'] arviz",
        draws % {"c": 1},
    ]


#: A stub of arviz 1, which still has the old name `InferenceData`, with a warning.
MIGRATED = """
__version__ = "1.3.0"

class DataTree:
    pass

class MigrationWarning(UserWarning, FutureWarning):
    pass

def __getattr__(name):
    if name != "InferenceData":
        raise AttributeError(name)
    import warnings
    warnings.warn("arviz.InferenceData is no longer available", MigrationWarning)
    return DataTree
"""


def test_importing_pymc3_asks_arviz_for_old_names_quietly(tmp_path, monkeypatch, recwarn):
    from optdb.host.theano.importing.compat.modules.libraries import arviz as replacement

    (tmp_path / "arviz.py").write_text(MIGRATED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "arviz", raising=False)
    fresh = runpy.run_path(replacement.__file__)
    assert fresh["InferenceData"].__name__ == "DataTree"
    assert recwarn.list == []
    monkeypatch.delitem(sys.modules, "arviz")


def test_an_arviz_of_pymc3_s_time_converts_traces_itself(monkeypatch):
    from types import SimpleNamespace

    from optdb.host.theano.importing.compat.modules.libraries import arviz

    old = SimpleNamespace(__version__="0.11.4", from_pymc3=object())
    monkeypatch.setattr(arviz._package, "module", old)
    assert arviz.from_pymc3 is old.from_pymc3


def test_what_is_missing_of_a_package():
    package = Optional("optdb_missing_package", "pip install it")
    with pytest.raises(NotImplementedError, match=r"missing_package\.plot is not available: .* is not installed"):
        package.get("plot")(3)
    with pytest.raises(AttributeError):
        package.get("__wrapped__")
    data_class = package.make_class("Data")
    assert not hasattr(data_class(), "posterior")
    with pytest.raises(AttributeError, match="The cure: pip install it"):
        _ = data_class().posterior
    assert Optional("json", "").get("loads") is __import__("json").loads


def test_text_of_hdf5_files_is_decoded_for_keras_alone():
    for library, written in (
        (named("Keras"), "__optdb_decode__(x.y, 'utf8')"),
        (named("Lasagne"), "x.y.decode('utf8')"),
    ):
        tree = translation.translate("x.y.decode('utf8')", "file", False, library)
        assert translation.ast.unparse(tree) == written
    decode = translation._helpers(False)["__optdb_decode__"]
    assert decode("text", "utf8") == decode(b"text", "utf8") == "text"


def test_redirections_of_a_library_are_its_own():
    source = "from theano.tensor.signal import downsample"
    assert "compat" not in translation.ast.unparse(translation.translate(source, "file", False))
    assert "compat" in translation.ast.unparse(translation.translate(source, "file", False, named("Lasagne")))


def test_numpy_s_runner_of_tests_names_pytest():
    from optdb.host.theano.importing.compat.modules.numpy.testing import Tester

    with pytest.raises(NotImplementedError, match="pytest"):
        Tester().test()
