"""Shortens the C code that reads a module's inputs and makes its thunks.

`share` runs after `outlining.outline`. Modules whose struct only holds storage share the functions that make and delete
their thunks. The code that stores an output stays inline, because sharing it would make calls to small models 1 to 3 %
slower.
"""

from __future__ import annotations

import re

_NAMESPACE = "optdb_outlined"

HELPERS = f"""
namespace {_NAMESPACE} {{
/* The structs of modules are arrays of references: the error's storage, which is borrowed, and the variables'. */
OPTDB_COLD static void delete_cells(PyObject** cells)
{{
    for (PyObject** cell = cells + 1; *cell; ++cell) {{
        Py_DECREF(*cell);
    }}
    free(cells);
}}

OPTDB_COLD static void delete_thunk(PyObject* thunk)
{{
    PyObject** cells = (PyObject**) PyCapsule_GetContext(thunk);
    if (cells) {{
        delete_cells(cells);
    }}
}}

OPTDB_COLD static PyObject* make_thunk(PyObject* args, Py_ssize_t count, void* executor)
{{
    if (count != PyTuple_Size(args)) {{
        PyErr_Format(PyExc_TypeError, "Wrong number of arguments, expected %i, got %i",
            (int) count, (int) PyTuple_Size(args));
        return NULL;
    }}
    PyObject** cells = (PyObject**) calloc(count + 1, sizeof(PyObject*));
    if (!cells) {{
        return PyErr_NoMemory();
    }}
    for (Py_ssize_t i = 0; i < count; ++i) {{
        cells[i] = PyTuple_GET_ITEM(args, i);
        if (i) {{
            Py_INCREF(cells[i]);
        }}
    }}
    PyObject* thunk = PyCapsule_New(executor, NULL, delete_thunk);
    if (!thunk || PyCapsule_SetContext(thunk, cells) != 0) {{
        Py_XDECREF(thunk);
        delete_cells(cells);
        return NULL;
    }}
    return thunk;
}}
}}
"""

ARRAY_HELPERS = f"""
namespace {_NAMESPACE} {{
static inline PyArrayObject* checked(PyObject* object, int type, const char* name)
{{
    Py_XINCREF(object);
    PyArrayObject* array = (PyArrayObject*) object;
    if (object == Py_None || !PyArray_Check(object) || !PyArray_ISALIGNED(array) || PyArray_TYPE(array) != type) {{
        set_array_error(object, type, name);
        return NULL;
    }}
    Py_INCREF(object);
    return array;
}}

OPTDB_SHARED static PyArrayObject* take(PyObject* object, int type, const char* name)
{{
    return checked(object, type, name);
}}

OPTDB_SHARED static PyArrayObject* take_output(PyObject* object, int type, const char* name)
{{
    if (object == Py_None) {{
        Py_INCREF(object);
        return NULL;
    }}
    return checked(object, type, name);
}}

OPTDB_COLD static PyObject* make_module(struct PyModuleDef* definition)
{{
    import_array();
    return PyModule_Create(definition);
}}
}}
"""

#: The check of an input or output, as `outline` writes it, with the error code and the label for failures.
_CHECK = (
    rf"if \(!::{_NAMESPACE}::is_array_of\((?P=object), (?P<type>\w+)\)\) "
    rf'\{{ ::{_NAMESPACE}::set_array_error\((?P=object), (?P=type), "(?P=type)"\); '
    rf"\{{\s*__failure = (?P<code>\d+);\s*::{_NAMESPACE}::set_default_error\(\);\s*goto (?P<label>\w+);\s*\}} \}}"
    r"\s*(?P=array) = \(PyArrayObject\*\)\((?P=object)\);\s*Py_XINCREF\((?P=array)\);"
)

_TAKE = re.compile(r"\{Py_XINCREF\((?P<object>py_\w+)\);\}\s*(?P<array>\w+) = NULL;\s*" + _CHECK)

_TAKE_OUTPUT = re.compile(
    r"\{Py_XINCREF\((?P<object>py_\w+)\);\}\s*if \((?P=object) == Py_None\)\s*\{\s*(?P<array>\w+) = NULL;\s*\}"
    r"\s*else\s*\{\s*(?P=array) = NULL;\s*" + _CHECK + r"\s*\}"
)

_MODULE_INIT = re.compile(
    r"(?P<head>PyMODINIT_FUNC \w+\(void\) \{)\s*import_array\(\);"
    r"\s*PyObject \*m = PyModule_Create\(&moduledef\);\s*return m;\s*\}"
)

#: Patterns for a struct that only holds storage: its constructor and destructor, and the code that calls them.
_STRUCT = re.compile(
    r"struct (?P<struct>__struct_compiled_op_\w+) \{"
    r"(?P<fields>\s*PyObject\* __ERROR;\s*(?:PyObject\* storage_\w+;\s*)*)"
    r"(?P=struct)\(\) \{[^{}]*\}\s*~(?P=struct)\(void\) \{\s*cleanup\(\);\s*\}"
    r"\s*int init\(PyObject\* __ERROR(?P<parameters>(?:, PyObject\* storage_\w+)*)\) \{"
    rf"\s*(?P<held>(?:::{_NAMESPACE}::hold\(storage_\w+\);\s*)*)(?P<assigned>(?:this->storage_\w+ = storage_\w+;\s*)*)"
    r"this->__ERROR = __ERROR;\s*return 0;\s*\}"
    r"\s*void cleanup\(void\) \{\s*(?:__label_\w+:\s*double __DUMMY_\w+;\s*)*"
    rf"(?P<dropped>(?:::{_NAMESPACE}::drop\(this->storage_\w+\);\s*)*)\}}"
)
_DESTRUCTOR = re.compile(
    r"OPTDB_COLD static void (?P<struct>__struct_compiled_op_\w+)_destructor\(PyObject \*capsule\) \{"
    r"\s*(?P=struct) \*self = \((?P=struct) \*\)PyCapsule_GetContext\(capsule\);\s*delete self;\s*\}"
)
_INSTANTIATE = re.compile(
    r"OPTDB_COLD static PyObject \* instantiate\(PyObject \* self, PyObject \*argtuple\) \{"
    r"\s*assert\(PyTuple_Check\(argtuple\)\);\s*if \((?P<count>\d+) != PyTuple_Size\(argtuple\)\)\{[^{}]*\}"
    r"\s*(?P<struct>__struct_compiled_op_\w+)\* struct_ptr = new (?P=struct)\(\);"
    r"\s*if \(struct_ptr->init\([^{}]*\) != 0\) \{[^{}]*\}"
    r"\s*PyObject\* thunk = PyCapsule_New\(\(void\*\)\(&(?P=struct)_executor\), NULL, (?P=struct)_destructor\);"
    r"\s*if \(thunk != NULL && PyCapsule_SetContext\(thunk, struct_ptr\) != 0\) \{[^{}]*\}\s*return thunk; \}"
)


#: Both variables point to the same object, but the compiler does not know that. This assignment says so, which saves a
#: register.
_SAME = r" \g<object> = (PyObject*) \g<array>;"


def share(body: str) -> str:
    """Shorten code that `outline` returned; the new code needs `HELPERS` and, if it uses arrays, `ARRAY_HELPERS`."""
    # Each pattern begins with rare text, so that matching is fast.
    body = _TAKE.sub(_called("take", "!{array}") + _SAME, body)
    body = _TAKE_OUTPUT.sub(_called("take_output", "!{array} && {object} != Py_None"), body)
    body = _MODULE_INIT.sub(rf"\g<head> return ::{_NAMESPACE}::make_module(&moduledef); }}", body)
    return _share_thunks(body)


def _called(function: str, failed: str) -> str:
    """Return the replacement text for a call to `function`, which takes an array."""
    groups = {"array": r"\g<array>", "object": r"\g<object>"}
    return (
        rf'\g<array> = ::{_NAMESPACE}::{function}(\g<object>, \g<type>, "\g<type>"); '
        rf"if ({failed.format(**groups)}) {{ __failure = \g<code>; goto \g<label>; }}"
    )


def _share_thunks(body: str) -> str:
    """Make a module use shared functions for its thunks if its struct only holds storage."""
    struct, destructor, instantiate = (pattern.search(body) for pattern in (_STRUCT, _DESTRUCTOR, _INSTANTIATE))
    if struct is None or destructor is None or instantiate is None:
        return body
    name, fields = struct["struct"], re.findall(r"storage_\w+", struct["fields"])
    orders = [re.findall(r"storage_\w+", struct[part]) for part in ("parameters", "held", "dropped")]
    assigned = re.findall(r"this->(storage_\w+) = (storage_\w+)", struct["assigned"])
    is_plain = (
        name == destructor["struct"] == instantiate["struct"]
        and int(instantiate["count"]) == len(fields) + 1
        and assigned == [(field, field) for field in fields]
        and all(order == fields for order in orders)
    )
    if not is_plain:
        return body
    make = (
        "OPTDB_COLD static PyObject * instantiate(PyObject * self, PyObject *argtuple) { "
        f"return ::{_NAMESPACE}::make_thunk(argtuple, {len(fields) + 1}, (void*)(&{name}_executor)); }}"
    )
    parts = [
        *(body[: struct.start()], f"struct {name} {{{struct['fields']}"),
        *(body[struct.end() : destructor.start()], body[destructor.end() : instantiate.start()]),
        *(make, body[instantiate.end() :]),
    ]
    return "".join(parts)
