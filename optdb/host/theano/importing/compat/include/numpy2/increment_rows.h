/* Stands in for theano.tensor.inc_code, whose C code uses iterators over indexed elements that NumPy 2 has no longer.

   Support code of AdvancedIncSubtensor1: adds to, or sets, rows of an array by a vector of row numbers, of which some
   may be the same. */

/* An array of `ndim` dimensions whose elements are added to those of another. */
struct increment_dims {
    int ndim;
    npy_intp shape[NPY_MAXDIMS + 1];
    npy_intp to_strides[NPY_MAXDIMS + 1];
    npy_intp from_strides[NPY_MAXDIMS + 1];
};

template <typename T>
static void increment_elements(char *to, const char *from, const increment_dims *dims, int axis, int inc_or_set)
{
    if (axis == dims->ndim) {
        *(T *)to = inc_or_set ? (T)(*(T *)to + *(const T *)from) : *(const T *)from;
        return;
    }
    for (npy_intp i = 0; i < dims->shape[axis]; ++i) {
        increment_elements<T>(to + i * dims->to_strides[axis], from + i * dims->from_strides[axis], dims, axis + 1,
                              inc_or_set);
    }
}

typedef void (*increment_function)(char *, const char *, const increment_dims *, int, int);

/* Return the function for a type of NumPy's, NULL where there is none; complex numbers are pairs of real ones. */
static increment_function choose_increment(int type_number)
{
    switch (type_number) {
    case NPY_BYTE: return increment_elements<npy_byte>;
    case NPY_UBYTE: return increment_elements<npy_ubyte>;
    case NPY_SHORT: return increment_elements<npy_short>;
    case NPY_USHORT: return increment_elements<npy_ushort>;
    case NPY_INT: return increment_elements<npy_int>;
    case NPY_UINT: return increment_elements<npy_uint>;
    case NPY_LONG: return increment_elements<npy_long>;
    case NPY_ULONG: return increment_elements<npy_ulong>;
    case NPY_LONGLONG: return increment_elements<npy_longlong>;
    case NPY_ULONGLONG: return increment_elements<npy_ulonglong>;
    case NPY_FLOAT:
    case NPY_CFLOAT: return increment_elements<npy_float>;
    case NPY_DOUBLE:
    case NPY_CDOUBLE: return increment_elements<npy_double>;
    default: return NULL;
    }
}

/* Describe one row of `array` and of `values`, which are broadcast to the rows that are chosen; -1 if they cannot be. */
static int describe_rows(PyArrayObject *array, PyArrayObject *values, npy_intp n_rows, increment_dims *dims,
                         npy_intp *row_stride)
{
    int ndim = PyArray_NDIM(array), missing = ndim - PyArray_NDIM(values);
    dims->ndim = ndim - 1;
    if (missing < 0) {
        PyErr_SetString(PyExc_ValueError, "the values have more dimensions than what is indexed");
        return -1;
    }
    for (int axis = 0; axis < ndim; ++axis) {
        npy_intp length = axis ? PyArray_DIM(array, axis) : n_rows, stride = 0;
        if (axis >= missing && PyArray_DIM(values, axis - missing) != 1) {
            if (PyArray_DIM(values, axis - missing) != length) {
                PyErr_Format(PyExc_ValueError,
                             "shape mismatch: dimension %d of the values has length %zd, and what is indexed %zd",
                             axis - missing, (Py_ssize_t)PyArray_DIM(values, axis - missing), (Py_ssize_t)length);
                return -1;
            }
            stride = PyArray_STRIDE(values, axis - missing);
        }
        if (!axis) {
            *row_stride = stride;
            continue;
        }
        dims->shape[axis - 1] = length;
        dims->to_strides[axis - 1] = PyArray_STRIDE(array, axis);
        dims->from_strides[axis - 1] = stride;
    }
    if (PyTypeNum_ISCOMPLEX(PyArray_TYPE(array))) {
        dims->shape[dims->ndim] = 2;
        dims->to_strides[dims->ndim] = dims->from_strides[dims->ndim] = PyArray_ITEMSIZE(array) / 2;
        ++dims->ndim;
    }
    return 0;
}

/* Let negative row numbers count from the end; -1, and nothing is changed in the array, where one is out of bounds. */
static int check_rows(PyArrayObject *rows, npy_intp n_rows)
{
    npy_intp *numbers = (npy_intp *)PyArray_DATA(rows);
    for (npy_intp i = 0; i < PyArray_SIZE(rows); ++i) {
        if (numbers[i] < -n_rows || numbers[i] >= n_rows) {
            PyErr_Format(PyExc_IndexError, "index %zd is out of bounds for axis 0 with size %zd",
                         (Py_ssize_t)numbers[i], (Py_ssize_t)n_rows);
            return -1;
        }
        if (numbers[i] < 0) {
            numbers[i] += n_rows;
        }
    }
    return 0;
}

static int inplace_increment(PyArrayObject *array, PyObject *index, PyArrayObject *increments, int inc_or_set)
{
    increment_function increment = choose_increment(PyArray_TYPE(array));
    PyArrayObject *rows = NULL, *values = NULL;
    PyArray_Descr *descr = PyArray_DESCR(array);
    increment_dims dims;
    npy_intp row_stride;
    int result = -1;

    if (PyArray_FailUnlessWriteable(array, "input/output array") < 0) {
        return -1;
    }
    if (PyArray_NDIM(array) == 0) {
        PyErr_SetString(PyExc_IndexError, "0-d arrays can't be indexed.");
        return -1;
    }
    if (increment == NULL) {
        PyErr_SetString(PyExc_TypeError, "unsupported type for a");
        return -1;
    }
    rows = (PyArrayObject *)PyArray_FromAny(index, PyArray_DescrFromType(NPY_INTP), 1, 1,
                                            NPY_ARRAY_CARRAY | NPY_ARRAY_FORCECAST | NPY_ARRAY_ENSURECOPY, NULL);
    if (rows != NULL) {
        Py_INCREF(descr);
        values = (PyArrayObject *)PyArray_FromAny((PyObject *)increments, descr, 0, 0,
                                                  NPY_ARRAY_FORCECAST | NPY_ARRAY_ALIGNED, NULL);
    }
    if (values != NULL && check_rows(rows, PyArray_DIM(array, 0)) == 0 &&
        describe_rows(array, values, PyArray_SIZE(rows), &dims, &row_stride) == 0) {
        const npy_intp *numbers = (const npy_intp *)PyArray_DATA(rows);
        for (npy_intp i = 0; i < PyArray_SIZE(rows); ++i) {
            increment(PyArray_BYTES(array) + numbers[i] * PyArray_STRIDE(array, 0),
                      PyArray_BYTES(values) + i * row_stride, &dims, 0, inc_or_set);
        }
        result = 0;
    }
    Py_XDECREF(values);
    Py_XDECREF(rows);
    return result;
}
