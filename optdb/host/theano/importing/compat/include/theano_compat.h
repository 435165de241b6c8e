/* Lets C code that was written for Python 3.9 and NumPy 1.19 compile with later ones.
 *
 * It is included ahead of everything that Theano compiles where optdb.host.compat.versions.needs_header() says so.
 * Its text is part of the keys of compiled modules.
 */
#ifndef OPTDB_THEANO_COMPAT_H
#define OPTDB_THEANO_COMPAT_H

#include <Python.h>
#include <numpy/_numpyconfig.h>

/* The struct of dtypes as it is in NumPy 2, with the field elsize. */
#if NPY_ABI_VERSION >= 0x02000000
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#endif

#include <numpy/arrayobject.h>

/* Names that numpy/npy_3kcompat.h had before NumPy 2. */
#if NPY_ABI_VERSION < 0x02000000
#include <numpy/npy_3kcompat.h>
#else
#define NPY_PY3K 1
#define PyInt_Check PyLong_Check
#define PyInt_CheckExact PyLong_CheckExact
#define PyInt_Type PyLong_Type
#define PyInt_FromLong PyLong_FromLong
#define PyInt_FromString PyLong_FromString
#define PyInt_FromSsize_t PyLong_FromSsize_t
#define PyInt_FromSize_t PyLong_FromSize_t
#define PyInt_AsLong PyLong_AsLong
#define PyInt_AS_LONG PyLong_AsLong
#define PyInt_AsSsize_t PyLong_AsSsize_t
#define PyNumber_Int PyNumber_Long
#define PyString_Type PyBytes_Type
#define PyString_Check PyBytes_Check
#define PyString_CheckExact PyBytes_CheckExact
#define PyString_FromString PyBytes_FromString
#define PyString_FromStringAndSize PyBytes_FromStringAndSize
#define PyString_AsString PyBytes_AsString
#define PyString_AS_STRING PyBytes_AS_STRING
#define PyString_Size PyBytes_Size
#define PyUString_Check PyUnicode_Check
#define PyUString_FromString PyUnicode_FromString
#define PyUString_FromFormat PyUnicode_FromFormat
#endif

#ifndef PyLong_AS_LONG
#define PyLong_AS_LONG PyLong_AsLong
#endif

/* Python 3.13 has these no longer. */
#if PY_VERSION_HEX >= 0x030D0000
#define PyEval_CallObjectWithKeywords(function, arguments, keywords) PyObject_Call(function, arguments, keywords)
#define PyEval_CallObject(function, arguments) PyObject_CallObject(function, arguments)
#endif

/* Complex numbers had the fields real and imag, which Theano's own numbers are derived from. */
#if NPY_ABI_VERSION >= 0x02000000 && defined(__cplusplus)
template <typename Real, typename Numpy>
struct optdb_complex {
    Real real, imag;

    operator Numpy() const
    {
        Numpy value;
        value._Val[0] = real;
        value._Val[1] = imag;
        return value;
    }
};

typedef optdb_complex<npy_float, npy_cfloat> optdb_complex64;
typedef optdb_complex<npy_double, npy_cdouble> optdb_complex128;
#undef npy_complex64
#undef npy_complex128
#define npy_complex64 optdb_complex64
#define npy_complex128 optdb_complex128
#endif

/* NPY_MAXDIMS as an axis means all axes; NumPy 2 has another number for that. */
#if NPY_ABI_VERSION >= 0x02000000
static inline int optdb_axis(int axis) { return axis == NPY_MAXDIMS ? NPY_RAVEL_AXIS : axis; }

#define OPTDB_REDUCTION(name) \
    static inline PyObject *optdb_##name(PyArrayObject *array, int axis, PyArrayObject *out) \
    { \
        return name(array, optdb_axis(axis), out); \
    }
#define OPTDB_TYPED_REDUCTION(name) \
    static inline PyObject *optdb_##name(PyArrayObject *array, int axis, int type, PyArrayObject *out) \
    { \
        return name(array, optdb_axis(axis), type, out); \
    }

OPTDB_REDUCTION(PyArray_Max)
OPTDB_REDUCTION(PyArray_Min)
OPTDB_REDUCTION(PyArray_ArgMax)
OPTDB_REDUCTION(PyArray_ArgMin)
OPTDB_REDUCTION(PyArray_All)
OPTDB_REDUCTION(PyArray_Any)
OPTDB_REDUCTION(PyArray_Ptp)
OPTDB_TYPED_REDUCTION(PyArray_Sum)
OPTDB_TYPED_REDUCTION(PyArray_Prod)
OPTDB_TYPED_REDUCTION(PyArray_CumSum)
OPTDB_TYPED_REDUCTION(PyArray_CumProd)
OPTDB_TYPED_REDUCTION(PyArray_Mean)

#undef PyArray_Max
#undef PyArray_Min
#undef PyArray_ArgMax
#undef PyArray_ArgMin
#undef PyArray_All
#undef PyArray_Any
#undef PyArray_Ptp
#undef PyArray_Sum
#undef PyArray_Prod
#undef PyArray_CumSum
#undef PyArray_CumProd
#undef PyArray_Mean
#define PyArray_Max optdb_PyArray_Max
#define PyArray_Min optdb_PyArray_Min
#define PyArray_ArgMax optdb_PyArray_ArgMax
#define PyArray_ArgMin optdb_PyArray_ArgMin
#define PyArray_All optdb_PyArray_All
#define PyArray_Any optdb_PyArray_Any
#define PyArray_Ptp optdb_PyArray_Ptp
#define PyArray_Sum optdb_PyArray_Sum
#define PyArray_Prod optdb_PyArray_Prod
#define PyArray_CumSum optdb_PyArray_CumSum
#define PyArray_CumProd optdb_PyArray_CumProd
#define PyArray_Mean optdb_PyArray_Mean
#endif

#endif
