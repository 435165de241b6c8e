"""Files of OpenCL C provide functions by name, and have placeholders that are substituted."""

import pathlib

import pytest

import optdb.codegen
from optdb.codegen.source import filled, functions, typed

FOLDER = pathlib.Path(optdb.codegen.__file__).parent
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cl") if path.name != "prelude.cl")


@pytest.mark.parametrize("file", FILES)
def test_all_of_a_file_is_in_functions(file):
    text = (FOLDER / file).read_text()
    ends = text.splitlines().count("}")
    assert len(functions(file)) == ends, (
        "a function has to begin and end at the beginning of a line, and a name of its own"
    )
    assert all(code in text and code.count("\n}\n") == 1 for code in functions(file).values())


def test_words_are_filled_in_as_a_whole():
    assert filled("T TILE = LOAD(x) + T1;", T="ga_int", TILE=4, LOAD="") == "ga_int 4 = (x) + T1;"
    half = typed("T a; W b = LOAD(a); a = STORE(b) + N;", "float16", N=3)
    assert half == "ga_half a; ga_float b = ga_half2float(a); a = ga_float2half(b) + 3;"
