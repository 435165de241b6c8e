"""Commands that are timed while other threads use the same device."""

from __future__ import annotations

import threading

import numpy as np

from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.commands import listened
from optdb.runtime.context import Context
from optdb.runtime.library import cl
from optdb.runtime.timing import Timer


def test_a_constant_array_is_on_the_device_before_others_may_use_it():
    context, timer, made = Context("opencl"), Timer(), []
    gate = cl.UserEvent(context.cl_context)
    with listened(timer):
        from_host(context, np.zeros(3))  # so that the timed queue exists
    ((_, timed),) = timer._queues.values()
    cl.enqueue_barrier(timed, wait_for=[gate])

    def upload():
        with listened(timer):
            made.append(from_host(context, np.arange(3), constant=True))

    thread = threading.Thread(target=upload)
    thread.start()
    thread.join(0.2)
    early = list(made)
    gate.set_status(cl.command_execution_status.COMPLETE)
    thread.join(60)
    assert not early and to_host(made[0]).tolist() == [0, 1, 2]
