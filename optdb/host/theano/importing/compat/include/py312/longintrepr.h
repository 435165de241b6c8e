/* Lets C code that Cython 0.28 generated, Theano's scan_perform.c, compile on CPython 3.12 and later.

   That code includes longintrepr.h by its old name, after it has chosen its shortcuts into
   CPython's structs and before it uses any of them. So this file is found in place of the
   one that moved, and takes the shortcuts back: integers, the thread state and frames look
   different by now. What is left is the C API. */
#ifndef OPTDB_LONGINTREPR_H
#define OPTDB_LONGINTREPR_H

/* The code has a variant without such shortcuts, which it uses for PyPy. */
#undef CYTHON_COMPILING_IN_CPYTHON
#define CYTHON_COMPILING_IN_CPYTHON 0
#undef CYTHON_COMPILING_IN_PYPY
#define CYTHON_COMPILING_IN_PYPY 1
#undef CYTHON_USE_PYLONG_INTERNALS
#define CYTHON_USE_PYLONG_INTERNALS 0
#undef CYTHON_FAST_THREAD_STATE
#define CYTHON_FAST_THREAD_STATE 0
#undef CYTHON_FAST_PYCALL
#define CYTHON_FAST_PYCALL 0
#undef CYTHON_FAST_PYCCALL
#define CYTHON_FAST_PYCCALL 0

/* One that Pyston has instead does not write into frames. A frame's line is the first of its
   code object, and each code object is made for one line. */
#undef CYTHON_COMPILING_IN_PYSTON
#define CYTHON_COMPILING_IN_PYSTON 1
#define PyFrame_SetLineNumber(frame, line)
#define PyCode_HasFreeVars(code) 0

/* A code object is made only to name a file, a function and a line in tracebacks, which is
   all that PyCode_NewEmpty takes; PyCode_New wants more arguments than it did. */
#define PyCode_New(argcount, kwonly, nlocals, stacksize, flags, code, consts, names, varnames, \
                   freevars, cellvars, filename, name, firstlineno, lnotab)                    \
    PyCode_NewEmpty(PyUnicode_AsUTF8(filename), PyUnicode_AsUTF8(name), firstlineno)

/* Python 3.13 added a parameter. That this is a macro tells the code that there is such a
   function, which PyPy lacks. */
#if PY_VERSION_HEX >= 0x030D0000
static inline int optdb_as_byte_array(PyLongObject *value, unsigned char *bytes, size_t n, int little, int is_signed)
{
    return _PyLong_AsByteArray(value, bytes, n, little, is_signed, 1);
}
#define _PyLong_AsByteArray optdb_as_byte_array
#else
#define _PyLong_AsByteArray _PyLong_AsByteArray
#endif

/* The code defines these itself, without asking whether they are there. */
#undef PyInt_AS_LONG
#undef PyInt_Check
#undef PyInt_CheckExact
#undef PyString_Check
#undef PyString_CheckExact
#undef PyString_Type

#endif
