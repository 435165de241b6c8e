"""Outlines repeated parts of Theano's C code, so that the compiler has less to optimize.

Most of a small module is error handling, which Theano repeats for each input. `outline` replaces this code with calls
to cold functions that all modules of a translation unit share (`HELPERS`), without changing behaviour or errors. The
patterns match Theano 1.0.5; other code is left unchanged.
"""

from __future__ import annotations

import re

#: The namespace of the shared functions; Theano's code does not use this name.
_NAMESPACE = "optdb_outlined"

HELPERS = f"""
namespace {_NAMESPACE} {{
#if defined(__GNUC__)
#define OPTDB_COLD __attribute__((cold, noinline, unused))
#define OPTDB_SHARED __attribute__((noinline, unused))
#else
#define OPTDB_COLD
#define OPTDB_SHARED
#endif

OPTDB_COLD static void set_default_error(void)
{{
    if (!PyErr_Occurred()) {{
        PyErr_SetString(PyExc_RuntimeError,
            "Unexpected error in an Op's C code. "
            "No Python exception was set.");
    }}
}}

OPTDB_COLD static void hold(PyObject* storage)
{{
    Py_XINCREF(storage);
}}

OPTDB_COLD static void drop(PyObject* storage)
{{
    Py_XDECREF(storage);
}}

OPTDB_SHARED static void release(PyObject* array, PyObject* object)
{{
    Py_XDECREF(array);
    Py_XDECREF(object);
}}

OPTDB_COLD static void store_error(PyObject* storage)
{{
    PyObject* error[3] = {{NULL, NULL, NULL}};
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    for (int i = 0; i < 3; ++i) {{
        if (!error[i]) {{
            error[i] = Py_None;
            Py_INCREF(Py_None);
        }}
    }}
    PyObject* old[3];
    for (int i = 0; i < 3; ++i) {{
        old[i] = PyList_GET_ITEM(storage, i);
        PyList_SET_ITEM(storage, i, error[i]);
    }}
    for (int i = 0; i < 3; ++i) {{
        Py_XDECREF(old[i]);
    }}
}}
}}
"""

ARRAY_HELPERS = f"""
namespace {_NAMESPACE} {{
OPTDB_SHARED static bool is_array_of(PyObject* object, int type)
{{
    return object != Py_None && PyArray_Check(object) && PyArray_ISALIGNED((PyArrayObject*) object)
        && PyArray_TYPE((PyArrayObject*) object) == type;
}}

static inline long last(PyArrayObject* array, npy_intp* of, int back)
{{
    return PyArray_NDIM(array) >= back ? (long) of[PyArray_NDIM(array) - back] : -1;
}}

OPTDB_COLD static void set_array_error(PyObject* object, int type, const char* name)
{{
    if (object == Py_None) {{
        PyErr_SetString(PyExc_ValueError, "expected an ndarray, not None");
    }} else if (!PyArray_Check(object)) {{
        PyErr_SetString(PyExc_ValueError, "expected an ndarray");
    }} else if (!PyArray_ISALIGNED((PyArrayObject*) object)) {{
        PyArrayObject* array = (PyArrayObject*) object;
        npy_intp* dims = PyArray_DIMS(array);
        npy_intp* strides = PyArray_STRIDES(array);
        PyErr_Format(PyExc_NotImplementedError,
            "expected an aligned array of type %ld "
            "(%s), got non-aligned array of type %ld"
            " with %ld dimensions, with 3 last dims "
            "%ld, %ld, %ld"
            " and 3 last strides %ld %ld, %ld.",
            (long) type, name, (long) PyArray_TYPE(array), (long) PyArray_NDIM(array),
            last(array, dims, 3), last(array, dims, 2), last(array, dims, 1),
            last(array, strides, 3), last(array, strides, 2), last(array, strides, 1));
    }} else {{
        PyErr_Format(PyExc_TypeError, "expected type_num %d (%s) got %d",
            type, name, PyArray_TYPE((PyArrayObject*) object));
    }}
}}

OPTDB_COLD static void set_output_error(PyArrayObject* array)
{{
    npy_intp* dims = PyArray_DIMS(array);
    npy_intp* strides = PyArray_STRIDES(array);
    PyErr_Format(PyExc_NotImplementedError,
        "c_sync: expected an aligned array, got non-aligned array of type %ld"
        " with %ld dimensions, with 3 last dims "
        "%ld, %ld, %ld"
        " and 3 last strides %ld %ld, %ld.",
        (long) PyArray_TYPE(array), (long) PyArray_NDIM(array),
        last(array, dims, 3), last(array, dims, 2), last(array, dims, 1),
        last(array, strides, 3), last(array, strides, 2), last(array, strides, 1));
}}
}}
"""

#: The code that runs after an error has been set, in a node's code and in ParamsType's code.
_FAIL = r"\{\s*__failure = \d+;.*?goto \w+;\s*\}|\{this->setErrorOccurred\(\); return;\}"

_DEFAULT_ERROR = re.compile(
    r"if \(!PyErr_Occurred\(\)\) \{\s*PyErr_SetString\(PyExc_RuntimeError,\s*"
    r'"Unexpected error in an Op\'s C code\. "\s*"No Python exception was set\."\);\s*\}'
)

#: The four checks of an input in TensorType.c_extract, all with the same failure code.
_CHECKS = re.compile(
    r"if \((?P<object>py_\w+) == Py_None\) \{(?:\s*//[^\n]*)*"
    r'\s*PyErr_SetString\(PyExc_ValueError, "expected an ndarray, not None"\);\s*(?P<fail>' + _FAIL + r")\s*\}"
    r"\s*if \(!PyArray_Check\((?P=object)\)\) \{"
    r'\s*PyErr_SetString\(PyExc_ValueError, "expected an ndarray"\);\s*(?P=fail)\s*\}'
    r"(?:\s*//[^\n]*)*"
    r"\s*if \(!PyArray_ISALIGNED\(\(PyArrayObject\*\) (?P=object)\)\) \{"
    r"\s*PyArrayObject \* tmp = \(PyArrayObject\*\) (?P=object);"
    r'\s*PyErr_Format\(PyExc_NotImplementedError,\s*"expected an aligned array of type %ld "[^;]*?\);'
    r"\s*(?P=fail)\s*\}"
    r"(?:\s*//[^\n]*)*"
    r"\s*if \(PyArray_TYPE\(\(PyArrayObject\*\) (?P=object)\) != (?P<type>NPY_\w+)\) \{"
    r'\s*PyErr_Format\(PyExc_TypeError,\s*"expected type_num %d \((?P=type)\) got %d",'
    r"\s*(?P=type), PyArray_TYPE\(\(PyArrayObject\*\) (?P=object)\)\);"
    r"\s*(?P=fail)\s*\}",
    re.DOTALL,
)

#: The error for an unaligned output in TensorType.c_sync.
_SYNC = re.compile(
    r'PyErr_Format\(PyExc_NotImplementedError,\s*"c_sync: expected an aligned array[^;]*?'
    r"PyArray_NDIM\((?P<array>\w+)\)[^;]*?\);"
)

_STORE = re.compile(
    r"// When there is a failure, this code puts the exception\s*// in __ERROR\.\s*PyObject\* err_type = NULL;"
    r".*?\{Py_XDECREF\(old_err_traceback\);\}",
    re.DOTALL,
)


#: Code that runs only when a thunk is created or deleted, or once per module, and is optimized for size.
_HOLD = re.compile(r"(?<!\{)Py_XINCREF\((storage_\w+)\);")
_DROP = re.compile(r"Py_XDECREF\((this->storage_\w+)\);")
_ONCE = re.compile(
    r"^([ \t]*)(static PyObject \* instantiate\(|static void __struct_compiled_op_\w+_destructor\()", re.MULTILINE
)

#: Code that releases a variable after each call: it decrements two reference counts, with two tests for each.
_RELEASE = re.compile(
    r"if \((?P<array>V\w+)\) \{\s*Py_XDECREF\((?P=array)\);\s*\}\s*\{Py_XDECREF\((?P<object>py_(?P=array))\);\}"
)


def outline(body: str) -> str:
    """Shorten a module's C code, given without its includes; the result needs `HELPERS` and `ARRAY_HELPERS`."""
    body = _CHECKS.sub(_shared_checks, body)
    body = _RELEASE.sub(rf"::{_NAMESPACE}::release((PyObject*) \g<array>, \g<object>);", body)
    body = _HOLD.sub(rf"::{_NAMESPACE}::hold(\1);", body)
    body = _DROP.sub(rf"::{_NAMESPACE}::drop(\1);", body)
    body = _ONCE.sub(r"\1OPTDB_COLD \2", body)
    body = _SYNC.sub(rf"::{_NAMESPACE}::set_output_error(\g<array>);", body)
    body = _STORE.sub(f"::{_NAMESPACE}::store_error(__ERROR);", body)
    return _DEFAULT_ERROR.sub(f"::{_NAMESPACE}::set_default_error();", body)


def _shared_checks(match: re.Match[str]) -> str:
    thing, type_number, fail = match["object"], match["type"], match["fail"]
    return (
        f"if (!::{_NAMESPACE}::is_array_of({thing}, {type_number})) {{ "
        f'::{_NAMESPACE}::set_array_error({thing}, {type_number}, "{type_number}"); {fail} }}'
    )
