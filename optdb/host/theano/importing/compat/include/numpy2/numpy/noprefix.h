/* Stands in for a header of NumPy 1 that NumPy 2 has no longer. It brought NumPy's API in, and names of it without their
   prefix; Theano's ConvOp, which includes it, uses none of these names. */
#include <numpy/arrayobject.h>
