"""The source of Theano's modules is rewritten as specified, and in no other way."""

from __future__ import annotations

import ast
import io

import numpy as np
import pytest

from optdb.host.theano.importing.compat import translation


def run(source, promoting=True):
    """Run translated source; return its namespace."""
    namespace = {}
    tree = translation.call_for_helpers(translation.translate(source, "test", promoting), promoting)
    exec(compile(tree, "test", "exec"), namespace)
    return namespace


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import numpy as np; x = np.bool", "bool"),
        ("import numpy; x = numpy.bool", "bool"),
        ("import numpy.random; x = numpy.float", "float"),
        ("import numpy.linalg, numpy; x = numpy.unicode", "str"),
        ("from numpy import object as x", "object"),
    ],
)
def test_numpy_s_names_of_python_s_types(source, name):
    assert run(source)["x"] is getattr(__builtins__, name, None) or run(source)["x"].__name__ == name


@pytest.mark.parametrize(
    "source",
    [
        "import distutils.sysconfig; distutils.sysconfig.get_python_inc()",
        "import distutils.spawn; distutils.spawn.find_executable('ls')",
        "import numpy.distutils; numpy.distutils.misc_util.get_numpy_include_dirs()",
        "import numpy.distutils.__config__; numpy.distutils.__config__.blas_opt_info",
        "import numpy.distutils.system_info; numpy.distutils.system_info.get_info('blas_opt')",
        "from numpy.linalg.linalg import LinAlgError",
        "from numpy.testing import dec, assert_allclose; dec.skipif",
        "from collections import OrderedDict, Callable, MutableSet",
        "import collections; collections.Mapping, collections.deque",
        "import inspect; inspect.getargspec(lambda a, b=1: 0)",
        "import configparser; configparser.SafeConfigParser(), configparser.NoSectionError",
        "import imp; imp.find_module('json')",
        "import pkg_resources; pkg_resources.DistributionNotFound",
        "from nose.plugins.skip import SkipTest; from nose.tools import assert_raises, assert_equal",
        "from nose.plugins.attrib import attr",
        "from scipy.signal.signaltools import _valfrommode, _bvalfromboundary, convolve",
        "from scipy.signal.sigtools import _convolve2d",
        "import six.moves.cPickle as pickle; pickle.dumps, pickle.Pickler, pickle.HIGHEST_PROTOCOL",
        "import scipy.signal.signaltools as tools; tools.convolve",
    ],
)
def test_what_theano_imports_is_there(source):
    run(source)


def test_the_rest_of_numpy_is_numpy_s_own():
    np_ = run("import numpy as np")["np"]
    for name in ("ndarray", "dtype", "float32", "add", "random", "fft", "__version__", "exp", "newaxis"):
        assert getattr(np_, name) is getattr(np, name)
    with pytest.raises(AttributeError, match="nonsense"):
        np_.nonsense  # noqa: B018
    assert {"float32", "bool"} <= set(dir(np_))


@pytest.mark.parametrize(
    "source",
    [
        "x = a == 'text'",
        "x = len(a) + 1",
        "x = a.ndim > 2",
        "x = '%s' % a",
        "x = a is b",
        "x = a in b",
        "x = 1 + 2",
        "x = a @ b",
        "a.b += 1",
        "a[0] += 1",
        "x = a < b < c",
        "import os.path as p",
        "from . import numpy",
    ],
)
def test_what_needs_no_promotion_stays(source):
    assert ast.dump(translation.translate(source, "test", True)) == ast.dump(ast.parse(source))


def test_without_promotion_operators_stay():
    source = "x = a + b\ny = a < b\na += 1\nz = np.add(a, b)"
    assert ast.dump(translation.translate(source, "test", False)) == ast.dump(ast.parse(source))


def test_operators_promote():
    namespace = run("import numpy as np\na = np.float32(1) * 0.1\nb = np.ones(2, 'float32')\nb = b * np.float64(2)")
    assert namespace["a"].dtype == "float64"
    assert namespace["b"].dtype == "float32"
    namespace = run("import numpy as np\na = np.ones(1, 'int8')\nb = a\na += 300\nc = np.maximum(b, 0.5)")
    assert namespace["a"] is namespace["b"]
    assert namespace["c"].dtype == "float64"


def test_operators_of_other_objects_are_called_once():
    source = "log = []\nclass C:\n    def __radd__(self, other):\n        log.append(other); return self\nc = 1 + C()"
    assert run(source)["log"] == [1]


def test_lines_stay_where_they_are():
    source = '"""Doc."""\nfrom __future__ import division\nimport numpy.random\n\n\ndef f(a):\n    return a + 1 / 0\n'
    namespace = run(source)
    with pytest.raises(ZeroDivisionError) as caught:
        namespace["f"](1)
    assert caught.traceback[-1].lineno + 1 == 7
    assert namespace["__doc__"] == "Doc."


def test_arrays_with_one_element_are_numbers():
    namespace = run("import numpy as np\na = float(np.ones((1, 1)))\nb = int(np.ones(1))\nc = bool(np.ones(0))")
    assert (namespace["a"], namespace["b"], namespace["c"]) == (1.0, 1, False)
    with pytest.raises(TypeError):
        run("import numpy as np\nfloat(np.ones(2))")


def test_scalars_are_shown_without_their_type():
    assert run("import numpy as np\nx = repr(np.float32(0.5)), repr('a')")["x"] == ("0.5", "'a'")


def test_integers_wrap_around():
    namespace = run(
        "import numpy as np\n"
        "a = np.asarray(300, dtype='int8')\nb = np.array([-1, 2], dtype='uint8')\nc = np.zeros(2, 'uint8')\nc.fill(-1)"
    )
    assert namespace["a"] == 44
    assert namespace["b"].tolist() == [255, 2]
    assert namespace["c"].tolist() == [255, 255]


WRAPPED = [
    ("int8", 300, 44),
    ("int8", 300.0, 44),
    ("int8", -(2**63), 0),
    ("int8", 2**63, OverflowError),
    ("int8", float("inf"), OverflowError),
    ("int8", float("nan"), ValueError),
    ("uint8", -1.5, 255),
    ("uint8", 2**64 - 1, OverflowError),
    ("uint32", 2**64 - 1, 2**32 - 1),
    ("uint64", -1, 2**64 - 1),
    ("uint64", -(2**63) - 1, OverflowError),
    ("int64", 2**63, OverflowError),
]


@pytest.mark.parametrize(
    "source", ["x = np.{0}(number)", "ctor = np.{0}\nx = ctor(number)", "x = getattr(np, '{0}')(number)"]
)
@pytest.mark.parametrize(("dtype", "number", "right"), WRAPPED)
def test_scalars_of_numbers_out_of_range_wrap_around(source, dtype, number, right):
    code = f"import numpy as np\ndef make(number):\n    {source.format(dtype)}\n    return x".replace("\nx", "\n    x")
    make = run(code)["make"]
    if isinstance(right, type):
        with pytest.raises(right):
            make(number)
        return
    assert make(number).dtype == dtype
    assert make(number) == right


@pytest.mark.parametrize(("dtype", "number", "right"), WRAPPED)
def test_lists_of_numbers_out_of_range_wrap_around(dtype, number, right):
    make = run("import numpy as np\ndef make(number, dtype):\n    return np.asarray([number, 1], dtype)")["make"]
    if isinstance(right, type):
        with pytest.raises(right):
            make(number, dtype)
        return
    assert make(number, dtype).tolist() == [right, 1]


def test_other_calls_pass_their_errors():
    namespace = run("def py_type(x):\n    raise OverflowError(x)\ndef f(x):\n    return py_type(x)")
    with pytest.raises(OverflowError, match="3"):
        namespace["f"](3)


def test_elements_are_set_by_number_index_or_alone():
    namespace = run(
        "import numpy as np\na, b = np.zeros((2, 2)), np.zeros(())\n"
        "a.itemset(3, 5.)\na.itemset((0, 1), 6.)\na.itemset(1, 0, 7.)\nb.itemset(8.)"
    )
    assert namespace["a"].tolist() == [[0, 6], [7, 5]]
    assert namespace["b"] == 8


def test_arrays_are_filled_with_numbers_out_of_range():
    namespace = run("import numpy as np\na = np.zeros(2, 'int8')\ndef fill(value):\n    a.fill(value)\n    return a[0]")
    assert [namespace["fill"](value) for value in (300, 300.0, np.float64(300), 2**63)] == [44, 44, 44, 0]


def test_functions_of_two_python_numbers_have_types_by_value():
    namespace = run("import numpy as np\nx = np.less(True, 2**64 - 1)\ny = np.maximum(*(3, 2**64 - 1))")
    assert namespace["x"]
    assert namespace["y"].dtype == "float64"


def test_the_angle_of_an_integer_has_double_precision():
    assert run("import numpy as np\nx = np.angle(np.int8(-1))")["x"] == np.pi


def test_integers_in_arrays_of_objects_wrap_around():
    """A Composite in Python computes with arrays of objects, because NumPy passes Python integers to it."""
    namespace = run("import numpy as np\na = np.asarray(np.array([[162], [-200], [2**70 + 3]], object), dtype='int8')")
    assert namespace["a"].dtype == "int8"
    assert namespace["a"].tolist() == [[-94], [56], [3]]


def test_copies_are_made_where_they_must_be():
    namespace = run(
        "import numpy as np\na = np.ones(2)\n"
        "b = np.array(a, copy=False)\nc = np.array(a, 'int8', copy=False)\nd = np.array(a)"
    )
    assert namespace["b"] is namespace["a"]
    assert namespace["c"].dtype == "int8"
    assert namespace["d"] is not namespace["a"]


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")
def test_lists_of_different_lengths_are_objects():
    assert run("import numpy as np\nx = np.asarray([[1], [1, 2]])")["x"].dtype == object


def test_abstract_types_stand_for_what_they_did():
    source = "import numpy as np; x = [np.dtype(t).name for t in (np.inexact, np.integer, np.complexfloating)]"
    assert run(source)["x"] == ["float64", np.dtype("l").name, "complex128"]


@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack", "stack"])
def test_arrays_are_stacked_as_they_are_generated(name):
    arrays = [np.arange(3), np.ones(3, "int8")]
    result = run(f"import numpy as np\ndef f(arrays): return np.{name}(x for x in arrays)")["f"](arrays)
    wanted = getattr(np, name)(arrays)
    assert result.dtype == wanted.dtype
    np.testing.assert_array_equal(result, wanted)


def test_an_object_with_a_type_is_one():
    source = "import numpy as np\nclass V: dtype = 'int8'\nx = np.zeros(2, dtype=V())\ny = np.dtype(V())"
    namespace = run(source + "\nz = np.cast[V()](1.5)")
    assert namespace["z"].dtype == "int8"
    assert namespace["x"].dtype == namespace["y"] == "int8"


@pytest.mark.parametrize(
    ("arrays", "scalars", "wanted"),
    [
        (["float32"], ["int64", "float64"], "float32"),
        (["int8"], ["float64"], "float64"),
        ([], ["int8", "int16"], "int16"),
    ],
)
def test_common_types(arrays, scalars, wanted):
    find_common_type = run("import numpy as np")["np"].find_common_type
    assert find_common_type(arrays, scalars) == wanted


def test_unique_gives_vectors():
    unique = run("import numpy as np")["np"].unique
    assert unique(np.ones((2, 2)), return_inverse=True)[1].tolist() == [0, 0, 0, 0]


def test_deprecated_escapes_are_the_user_s_business_no_more(recwarn):
    translation.translate("x = '\\d'", "test", True)
    assert not recwarn.list


def test_copies_of_random_states_draw_alone():
    namespace = run("import copy\nimport numpy as np\na = np.random.RandomState(1)\nb = copy.copy(a)")
    assert namespace["b"].uniform() == namespace["a"].uniform() == np.random.RandomState(1).uniform()
    assert run("from copy import copy, deepcopy\nx = copy([1])")["x"] == [1]


def test_methods_of_tests_are_renamed_in_tests_only():
    tree = ast.dump(translation.translate("self.assert_(a)\nopt.assert_(b)\nself.failUnless", "test", False))
    assert tree == ast.dump(ast.parse("self.assertTrue(a)\nopt.assert_(b)\nself.assertTrue"))


def test_texts_show_arrays_with_one_element_as_numbers():
    namespace = run(
        "import numpy as np\nx = '%.1f %s' % (np.ones(1), 2)\ny = '%d' % np.ones((1, 1))\nz = '%r' % np.int8(3)"
    )
    assert (namespace["x"], namespace["y"], namespace["z"]) == ("1.0 2", "1", "3")


def test_modules_of_scipy_that_are_seldom_used_are_imported_late():
    namespace = run(
        "import scipy.stats\nfrom scipy.signal.signaltools import convolve\nx = scipy.stats.chi2.sf(1.0, 2)"
    )
    assert 0 < namespace["x"] < 1
    assert namespace["convolve"]([1, 2], [1, 1]).tolist() == [1, 3, 2]


def test_a_signature_of_one_character_is_a_type():
    assert run("import numpy as np\nx = np.sqrt(4, sig='f')")["x"].dtype == "float32"


def test_a_signature_that_is_no_text_is_left_to_numpy():
    namespace = run("import numpy as np\ndef f():\n    return np.sqrt(4, sig=None)")
    with pytest.raises(TypeError):
        namespace["f"]()


@pytest.mark.parametrize(("dtype", "wanted"), [("int8", "float16"), ("uint16", "float32"), ("int64", "float64")])
def test_integers_are_rounded_to_floating_types(dtype, wanted):
    source = f"import numpy as np\na = np.ones(2, '{dtype}')\nx = [np.ceil(a), np.floor(a), np.trunc(a)]"
    assert {str(rounded.dtype) for rounded in run(source)["x"]} == {wanted}


@pytest.mark.parametrize(
    "source",
    [
        "y = x[[slice(1, 3) for i in range(2)]]",
        "def f(x):\n    index = [None] * 2\n    index[0] = index[1] = slice(1, 3)\n    return x[index]\ny = f(x)",
        "def f(x):\n    index = list((slice(1, 3), [1, 2]))\n    x[index] += 0\n    return x[index]\ny = f(x)",
        "y = x[[1 + i for i in range(2)]][:, 1:3]",
    ],
)
def test_lists_with_slices_index_arrays_as_tuples_do(source):
    namespace = run(f"import numpy as np\nx = np.arange(16.0).reshape((4, 4))\n{source}")
    np.testing.assert_array_equal(namespace["y"], namespace["x"][1:3, 1:3])


def test_a_module_keeps_its_docstring_and_imports_from_the_future():
    namespace = run('"""About it."""\nfrom __future__ import annotations\nx = 3 * int("4") if 1 == int("1") else 0')
    assert namespace["__doc__"] == "About it."
    assert namespace["x"] == 12
    assert run("'Alone.'")["__doc__"] == "Alone."


def test_lists_index_what_is_no_array_as_they_are():
    assert run("class A:\n    def __getitem__(self, i):\n        return i\na = A()\nx = a[[None for i in range(1)]]")[
        "x"
    ] == [None]


def test_picklers_take_functions_for_persistent_objects():
    pickle, file = run("import pickle")["pickle"], io.BytesIO()
    pickler = pickle.Pickler(file, 2)
    pickler.persistent_id = lambda value: "five" if value == 5 else None
    pickler.dump([5, 6])
    unpickler = pickle.Unpickler(io.BytesIO(file.getvalue()))
    unpickler.persistent_load = {"five": 5}.get
    assert unpickler.load() == [5, 6]
