/* Lets C code that Cython 0.28 generated, Theano's scan_perform.c, compile on CPython 3.11.

   That code includes longintrepr.h by its old name, after it has chosen its shortcuts into
   CPython's structs and before it uses any of them. So this file is found in place of the
   one that moved, includes it, and takes back what 3.11 no longer has. */
#ifndef OPTDB_LONGINTREPR_H
#define OPTDB_LONGINTREPR_H

#include <cpython/longintrepr.h>

/* The thread state lost exc_type and exc_traceback, frames lost f_localsplus: call the
   C API instead. */
#undef CYTHON_FAST_THREAD_STATE
#define CYTHON_FAST_THREAD_STATE 0
#undef CYTHON_FAST_PYCALL
#define CYTHON_FAST_PYCALL 0

/* A code object is made only to name a file, a function and a line in tracebacks, which is
   all that PyCode_NewEmpty takes; PyCode_New wants more arguments than it did. */
#define PyCode_New(argcount, kwonly, nlocals, stacksize, flags, code, consts, names, varnames, \
                   freevars, cellvars, filename, name, firstlineno, lnotab)                    \
    PyCode_NewEmpty(PyUnicode_AsUTF8(filename), PyUnicode_AsUTF8(name), firstlineno)

/* The line number of a traceback is written into the frame, a type that is now internal. */
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

#endif
