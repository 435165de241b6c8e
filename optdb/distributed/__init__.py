"""Data-parallel training: `DataParallel` trains a compiled function on several devices or machines.

``sharding`` derives which parts of a step each worker can compute from its part of the batch, and where sums over
workers are needed; ``training_functions`` holds the resulting functions. A ``replica`` has a copy of the state on one
device. An ``exchange`` adds up arrays from all workers. Workers are either threads of this process (``threads``) or
dask workers, which run ``workers`` and are controlled by ``clusters``. Dask provides processes, transport and fault
detection.

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
