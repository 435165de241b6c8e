"""Lifting of whole graphs to a device in one pass."""

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
