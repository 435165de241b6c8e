"""Outlines code around the loops of Elemwise and CAReduce: checks of lengths, allocation, and sorting of the loops.

Theano generates this code for each array and axis. The generated code is replaced by calls to functions that all
modules of a translation unit share (`LOOP_HELPERS`). Errors, the reuse of outputs, and the loops themselves do not
change.
"""

from __future__ import annotations

import re

_NAMESPACE = "optdb_outlined"

#: Shared functions, which need `optdb.host.theano.clinker.outlining.HELPERS` and <numpy/arrayobject.h>.
LOOP_HELPERS = f"""
namespace {_NAMESPACE} {{
OPTDB_COLD static void set_rank_error(void)
{{
    PyErr_SetString(PyExc_ValueError, "Not enough dimensions on input.");
}}

/* For each comparison: two inputs with an axis each. The first pair of lengths that differ is the error. */
OPTDB_COLD static void set_length_error(int count, const int (*axes)[4], const npy_intp (*lengths)[2])
{{
    for (int i = 0; i < count; ++i) {{
        if (lengths[i][0] != lengths[i][1]) {{
            PyErr_Format(PyExc_ValueError,
                "Input dimension mis-match. (input[%i].shape[%i] = %lld, input[%i].shape[%i] = %lld)",
                axes[i][0], axes[i][1], (long long int) lengths[i][0],
                axes[i][2], axes[i][3], (long long int) lengths[i][1]);
            return;
        }}
    }}
}}

OPTDB_SHARED static PyArrayObject* resized(PyArrayObject* array, int ndim, npy_intp* dims, int type)
{{
    PyArray_Dims new_dims;
    new_dims.len = ndim;
    new_dims.ptr = dims;
    PyObject* success = PyArray_Resize(array, &new_dims, 0, NPY_CORDER);
    if (success) {{
        Py_DECREF(success);
        return array;
    }}
    PyErr_Clear();
    Py_XDECREF(array);
    return (PyArrayObject*) PyArray_EMPTY(ndim, dims, type, 0);
}}

/* Sort axes by decreasing keys, and equal keys by decreasing axes. */
OPTDB_SHARED static void sort_axes(int count, int* keys, int* axes)
{{
    for (int i = 1; i < count; ++i) {{
        const int key = keys[i], axis = axes[i];
        int j = i;
        for (; j > 0 && (keys[j - 1] < key || (keys[j - 1] == key && axes[j - 1] < axis)); --j) {{
            keys[j] = keys[j - 1];
            axes[j] = axes[j - 1];
        }}
        keys[j] = key;
        axes[j] = axis;
    }}
}}
}}
"""

#: The code that runs after an error has been set; see `optdb.host.theano.clinker.outlining`.
_FAIL = r"\{\s*__failure = \d+;[^{}]*goto \w+;\s*\}"

_RANK = re.compile(r'PyErr_SetString\(PyExc_ValueError, "Not enough dimensions on input\."\);')

_COMPARISON = (
    r"if \((?P<first>\w+_n\d+) != (?P<second>\w+_n\d+)\)\s*\{"
    r'\s*PyErr_Format\(PyExc_ValueError, "Input dimension mis-match\. \(input\[%i\]\.shape\[%i\] = %lld, '
    r'input\[%i\]\.shape\[%i\] = %lld\)",'
    r"\s*(?P<i>\d+),\s*(?P<x>\d+),\s*\(long long int\) (?P=first),"
    r"\s*(?P<j>\d+),\s*(?P<y>\d+),\s*\(long long int\) (?P=second)\s*\);"
    r"\s*(?P<fail>" + _FAIL + r")\s*\}\s*"
)
_ONE_COMPARISON = re.compile(_COMPARISON)
#: The start of a comparison of lengths. A node's other comparisons directly follow its first comparison.
_COMPARISON_START = re.compile(r"if \(\w+_n\d+ != \w+_n\d+\)")

_RESIZE = re.compile(
    r"PyArray_Dims new_dims;\s*new_dims\.len = (?P<ndim>\d+);\s*new_dims\.ptr = dims;"
    r"\s*PyObject\* success = PyArray_Resize\((?P<array>\w+), &new_dims, 0, NPY_CORDER\);"
    r"\s*if \(!success\) \{\s*//[^\n]*\s*PyErr_Clear\(\);\s*Py_XDECREF\((?P=array)\);"
    r"\s*(?P=array) = \(PyArrayObject\*\)PyArray_EMPTY\((?P=ndim), dims, (?P<type>\w+), 0\);"
    r"\s*\} else \{\s*Py_DECREF\(success\);\s*\}"
)

#: Code that sorts pairs of an output's stride and axis in decreasing order.
_ORDER = re.compile(
    r"std::vector< std::pair<int, int> > (?P<out>\w+)_loops\((?P<ndim>\d+)\);"
    r"\s*std::vector< std::pair<int, int> >::iterator (?P=out)_loops_it = (?P=out)_loops\.begin\(\);"
    r"(?P<pairs>(?:\s*(?P=out)_loops_it->first = [^;\n]*;"
    r"\s*(?P=out)_loops_it->second = \d+;\s*\+\+(?P=out)_loops_it;)+)"
    r"\s*//[^\n]*\s*std::sort\((?P=out)_loops\.rbegin\(\), (?P=out)_loops\.rend\(\)\);"
    r"(?P<totals>\s*int init_totals\[\d+\] = \{[^}]*\};)"
    r"\s*(?P=out)_loops_it = (?P=out)_loops\.begin\(\);"
    r"(?P<lengths>(?:\s*int TOTAL_\d+ = init_totals\[(?P=out)_loops_it->second\];\s*\+\+(?P=out)_loops_it;)+)"
    r"(?P<table>\s*int init_strides\[\d+\]\[\d+\] = \{[^}]*\};)"
    r"\s*std::vector< std::pair<int, int> >::reverse_iterator (?P=out)_loops_rit;"
    r"(?P<strides>(?:\s*(?P=out)_loops_rit = (?P=out)_loops\.rbegin\(\);"
    r"(?:\s*int \w+_stride_l\d+ = init_strides\[\d+\]\[(?P=out)_loops_rit->second\];\s*\+\+(?P=out)_loops_rit;)+)+)"
)
_KEY = re.compile(r"_loops_it->first = ([^;\n]*);")
_LENGTH = re.compile(r"TOTAL_(\d+)")
_STRIDE = re.compile(r"int (\w+_stride_l(\d+)) = init_strides\[(\d+)\]")


def outline_loops(body: str) -> str:
    """Shorten code that `outline` returned for elementwise ops and reductions; the new code needs `LOOP_HELPERS`."""
    body = _RANK.sub(f"::{_NAMESPACE}::set_rank_error();", body)
    body = _RESIZE.sub(rf"\g<array> = ::{_NAMESPACE}::resized(\g<array>, \g<ndim>, dims, \g<type>);", body)
    body = _ORDER.sub(_sorted_axes, body)
    return _with_shared_comparisons(body)


def _with_shared_comparisons(body: str) -> str:
    parts, end = [], 0
    while start := _COMPARISON_START.search(body, end):
        run: list[re.Match[str]] = []
        at = start.start()
        while (match := _ONE_COMPARISON.match(body, at)) and (not run or match["fail"] == run[0]["fail"]):
            run.append(match)
            at = match.end()
        if not run:
            parts.append(body[end : start.end()])
            end = start.end()
            continue
        parts += [body[end : start.start()], _comparisons(run)]
        end = at
    return "".join([*parts, body[end:]])


def _comparisons(run: list[re.Match[str]]) -> str:
    differ = " || ".join(f"{match['first']} != {match['second']}" for match in run)
    axes = ", ".join(f"{{{match['i']}, {match['x']}, {match['j']}, {match['y']}}}" for match in run)
    lengths = ", ".join(f"{{{match['first']}, {match['second']}}}" for match in run)
    return (
        f"if ({differ}) {{\n"
        f"static const int axes[][4] = {{{axes}}};\n"
        f"const npy_intp lengths[][2] = {{{lengths}}};\n"
        f"::{_NAMESPACE}::set_length_error({len(run)}, axes, lengths);\n{run[0]['fail']}\n}}\n"
    )


def _sorted_axes(match: re.Match[str]) -> str:
    ndim = int(match["ndim"])
    keys = ", ".join(f"(int) {key}" for key in _KEY.findall(match["pairs"]))
    lengths = "".join(f"int TOTAL_{i} = init_totals[loop_axes[{i}]];\n" for i in _LENGTH.findall(match["lengths"]))
    strides = "".join(
        f"const int {name} = init_strides[{row}][loop_axes[{level}]];\n"
        for name, level, row in _STRIDE.findall(match["strides"])
    )
    return (
        f"int loop_keys[{ndim}] = {{{keys}}}, loop_axes[{ndim}] = {{{', '.join(map(str, range(ndim)))}}};\n"
        f"::{_NAMESPACE}::sort_axes({ndim}, loop_keys, loop_axes);"
        f"{match['totals']}\n{lengths}{match['table']}\n{strides}"
    )
