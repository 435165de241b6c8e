"""Lifting of whole graphs to any device in one pass.

From the bottom up::

    device        the interface of a device: its array type, its transfer ops, its properties
    contexts      names bound to devices
    transfers     deduplicates and counts transfers
    lifter        op_lifter: replaces one host op by device ops
    placement     decides where each node will run: forward, then backward
    partitioning  moves small sets of nodes to the other side to save transfers
    lift          GraphToGPU, which builds the planned graph, and its database
    report        the placement of each node
    explain       tables and a picture of a compiled function's placement
    inner         lifters of ops with inner graphs, for any device

The OpenCL device (``optdb.opencl``) uses this package.
"""

from optdb.host import import_host

import_host()

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
