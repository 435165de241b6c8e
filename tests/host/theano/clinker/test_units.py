"""The source code of modules is joined into translation units, and shortened."""

from __future__ import annotations

import pytest
import theano.tensor as tt
from theano.gof.cc import CLinker
from theano.gof.fg import FunctionGraph

from optdb.host.theano.clinker.outlining import outline
from optdb.host.theano.clinker.shared_thunks import share
from optdb.host.theano.clinker.units import (
    COMMON_HEADERS,
    HARMLESS_HEADERS,
    LIGHT_HEADERS,
    Environment,
    Translation,
    _includes,
    group,
    is_contained,
    module_of,
    unit_text,
)

ENVIRONMENT = Environment(None, ("-O3",), (), (), (), ("<Python.h>",), ())


def translation(name, chars=10, environment=ENVIRONMENT, can_share=True, body=None):
    own = "x" * chars if body is None else body
    return Translation(name, f"source of {name}", own if can_share else "", environment)


def names(units):
    return [sorted(module.name for module in unit) for unit in units]


def test_modules_that_cannot_share_are_alone():
    modules = [translation("a"), translation("b", can_share=False), translation("c")]
    assert sorted(names(group(modules, 1, 1000, 10))) == [["a", "c"], ["b"]]


@pytest.mark.parametrize("field", ["args", "libraries", "includes", "prelude", "header_dirs", "lib_dirs"])
def test_modules_of_other_environments_are_apart(field):
    other = Environment(**{**vars(ENVIRONMENT), field: ("other",)})
    modules = [translation("a"), translation("b", environment=other), translation("c")]
    assert sorted(names(group(modules, 1, 1000, 10))) == [["a", "c"], ["b"]]


def test_work_is_divided_among_processors_where_it_is_worth_it():
    modules = [translation(str(n), chars=100) for n in range(8)]
    assert [len(unit) for unit in group(modules, 4, 1, 10)] == [2, 2, 2, 2]
    assert [len(unit) for unit in group(modules, 4, 400, 10)] == [4, 4]
    assert [len(unit) for unit in group(modules, 1, 1, 3)] == [3, 3, 2]


def test_each_module_is_in_one_unit_whatever_their_order():
    modules = [translation(str(n), chars=n * n) for n in range(20)]
    units = group(modules, 3, 50, 7)
    assert sorted(name for unit in names(units) for name in unit) == sorted(str(n) for n in range(20))
    assert names(group(reversed(modules), 3, 50, 7)) == names(units)


def test_macros_are_put_back_behind_a_module():
    text = unit_text([translation("a", body="#define ONE 1\n# undef TWO\n"), translation("b", body="int b;")])
    before, _, after = text.partition("namespace optdb_a {")
    for name in ("ONE", "TWO"):
        assert f'#pragma push_macro("{name}")' in before
        assert f'#pragma pop_macro("{name}")' in after.partition("namespace optdb_b {")[0]


def test_a_module_that_cannot_share_is_compiled_as_theano_has_it():
    assert unit_text([translation("a", can_share=False)]) == "source of a"


@pytest.mark.parametrize(
    ("line", "contained"),
    [
        ("#define X 1", True),
        ("  #  ifdef X", True),
        ("#pragma omp parallel for", True),
        ("#include <errno.h>", False),
        ("#pragma GCC optimize(3)", False),
        ("#line 3", False),
        ("int a; // #include", True),
    ],
)
def test_what_may_stand_in_a_namespace(line, contained):
    assert is_contained(f"int x;\n{line}\nint y;") is contained


def source_of(*outputs):
    graph = FunctionGraph(theano_inputs(outputs), list(outputs))
    return module_of(CLinker().accept(graph))


def theano_inputs(outputs):
    from theano.gof.graph import inputs

    return [var for var in inputs(outputs) if var.owner is None]


def test_what_theano_repeats_stands_once():
    x, y = tt.dmatrices("xy")
    module = source_of(tt.exp(x) * y)
    assert module.source.count("expected an ndarray, not None") == 3
    for text in ("expected an ndarray", "Unexpected error in an Op", "c_sync: expected", "PyErr_Fetch"):
        assert text not in module.body
    assert module.body.count("::take(") == 2
    assert module.body.count("::take_output(") == 1
    for text in ("is_array_of(", "import_array"):
        assert text not in module.body
    assert "exp(" in module.body


def test_a_module_that_holds_nothing_but_storage_shares_what_makes_its_thunks():
    x, y = tt.dmatrices("xy")
    body = source_of(x * y).body
    assert body.count("::make_thunk(argtuple, 4, ") == 1
    for text in ("PyCapsule", "PyTuple", "memset", "delete", "cleanup"):
        assert text not in body


def test_a_module_with_state_of_its_own_makes_its_thunks_itself():
    x, y = tt.dmatrices("xy")
    intermediate = source_of(tt.exp(x) * y).body  # the array between the two nodes is stored
    added = source_of(x * y).own_code.replace("PyObject* __ERROR;\n", "PyObject* __ERROR;\n int calls;\n", 1)
    assert "int calls" in added
    for body in (intermediate, share(outline(added))):
        assert "::make_thunk(" not in body
        assert "_destructor(PyObject *capsule)" in body
        assert "::make_module(" in body


@pytest.mark.parametrize(
    ("code", "prints"),
    [
        ("std::vector<std::pair<int, int> > loops; std :: sort(begin, end);", False),
        ("// std::cout << x\n/* std::cerr\n << x */", False),
        ("std::cerr << x;", True),
        ("std::string text;", True),
        ("using namespace std;", True),
    ],
)
def test_headers_that_print_are_read_where_code_prints(code, prints):
    headers = COMMON_HEADERS + HARMLESS_HEADERS if prints else LIGHT_HEADERS
    assert _includes(COMMON_HEADERS, ["", code]) == headers
    assert ("<iostream>" in headers) is prints


def test_what_is_not_theanos_text_stays():
    code = 'if (py_V1 == Py_None) { PyErr_SetString(PyExc_ValueError, "mine"); }\nPy_XINCREF(storage);'
    assert share(outline(code)) == code
