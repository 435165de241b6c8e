"""Whole graphs to a device in one pass, for any device.

Read from the bottom up::

    device        what has to be known of a device: its array type, its transfers, some answers
    contexts      names bound to devices
    transfers     a value that several ops want is transferred once
    lifter        op_lifter: how one op of the host becomes one of the device
    plan          where each node will run: forward, then backward
    partitioning  small sets of nodes that change sides to save transfers
    lift          GraphToGPU: the plan carried out, and its database
    report        what became of each node;  explain: the same for a compiled function, with a picture
    inner         ops with branches inside, for any device

The OpenCL device (``optdb.opencl``) is the first user.
"""

from optdb.deprecation import renamed_names
from optdb.host import bootstrap

bootstrap.import_host()

from optdb.lifters.device import Device
from optdb.lifters.explain import Explanation, explain
from optdb.lifters.inner import lift_inner
from optdb.lifters.lift import GraphToGPU, GraphToGPUDB
from optdb.lifters.lifter import BadLift, Declined, Lifter, op_lifter
from optdb.lifters.report import LiftReport, NodeReport, lift_reports
from optdb.lifters.transfers import record_transfer, transfer_once

__all__ = [
    "BadLift",
    "Declined",
    "Device",
    "Explanation",
    "GraphToGPU",
    "GraphToGPUDB",
    "LiftReport",
    "Lifter",
    "NodeReport",
    "explain",
    "lift_inner",
    "lift_reports",
    "op_lifter",
    "record_transfer",
    "transfer_once",
]


__getattr__ = renamed_names(__name__, {"crossed": "record_transfer"})
