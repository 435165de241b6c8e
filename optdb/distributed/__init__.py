"""Data-parallel training: `DataParallel` trains a compiled function on several devices or machines.

Importing this package imports Theano and PyOpenCL. Dask is imported only when it is used; install it with ``pip install
'optdb[distributed]'``.
"""

from optdb.host import import_host

import_host()

from optdb.distributed.data_parallel import DataParallel
from optdb.distributed.errors import NoGradients, NotSplittable, StateLost, WorkerFailed, WorkerRefused, WorkerTimeout

__all__ = [
    "DataParallel",
    "NoGradients",
    "NotSplittable",
    "StateLost",
    "WorkerFailed",
    "WorkerRefused",
    "WorkerTimeout",
]
