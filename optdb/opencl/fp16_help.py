"""float16 in kernels, by the names of `theano.gpuarray.fp16_help`; see :mod:`optdb.codegen.fp16`."""

from optdb.codegen.fp16 import load_w, work_dtype, write_w

__all__ = ["load_w", "work_dtype", "write_w"]
