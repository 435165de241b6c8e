"""Helpers for float16 in kernels, under their names in `theano.gpuarray.fp16_help`; see :mod:`optdb.codegen.source`."""

from optdb.codegen.source import load_w, work_dtype, write_w

__all__ = ["load_w", "work_dtype", "write_w"]
