"""``numpy`` with the names and the behavior of version 1.19, as Theano expects.

Functions that differ between versions come from `_functions`; all other names are NumPy's own.
"""

import builtins

import numpy

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to
from optdb.host.theano.importing.compat.modules.numpy import _functions
from optdb.host.theano.importing.compat.modules.numpy._functions import NUMPY_2

_DIFFERENT = (
    *("array", "asarray", "asscalar", "cast", "column_stack", "dstack", "empty", "find_common_type", "fromstring"),
    *("hstack", "in1d", "issubsctype", "maximum_sctype", "obj2sctype", "ones", "sctype2char", "sctypes", "show_config"),
    *("stack", "trapz", "vstack", "zeros"),
)
_DIFFERENT_IN_NUMPY_2 = ("angle", "can_cast", "ceil", "clip", "floor", "result_type", "trunc", "unique", "where")
globals().update({name: getattr(_functions, name) for name in _DIFFERENT + (_DIFFERENT_IN_NUMPY_2 if NUMPY_2 else ())})

# Names of Python types

bool = builtins.bool
int = builtins.int
float = builtins.float
complex = builtins.complex
object = builtins.object
str = builtins.str
long = builtins.int
unicode = builtins.str

# Aliases of existing names

float_ = numpy.float64
complex_ = numpy.complex128
cfloat = numpy.complex128
singlecomplex = numpy.complex64
string_ = numpy.bytes_
unicode_ = numpy.str_
Inf = Infinity = PINF = infty = numpy.inf
NINF = -numpy.inf
NaN = NAN = numpy.nan
PZERO, NZERO = 0.0, -0.0
alltrue = numpy.all
sometrue = numpy.any
product = numpy.prod
cumproduct = numpy.cumprod
round_ = numpy.round
row_stack = _functions.vstack
typeDict = numpy.sctypeDict  # noqa: N816
ComplexWarning = getattr(numpy, "exceptions", numpy).ComplexWarning
VisibleDeprecationWarning = getattr(numpy, "exceptions", numpy).VisibleDeprecationWarning
MAXDIMS = 64 if NUMPY_2 else 32

__getattr__, __dir__ = fall_back_to(numpy, globals(), submodules=["core", "distutils", "linalg", "testing"])
