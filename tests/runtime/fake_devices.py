"""Makes fake devices with everything that `optdb.runtime.device_profiles` queries."""

from __future__ import annotations

import types

import pyopencl as cl


class FakeDevice:
    """Return a fake device with the given names; `changes` replace its other attributes."""

    def __init__(self, name, platform="Some Platform", kind=cl.device_type.CPU, units=8, broken=None, **changes):
        self.name = name
        self.platform = types.SimpleNamespace(name=platform, version="OpenCL 1.2")
        self.vendor = "Some Vendor"
        self.version = "OpenCL 1.2"
        self.driver_version = "1.0"
        self.profile = "FULL_PROFILE"
        self.type = kind
        self.extensions = "cl_khr_fp64"
        self.max_compute_units = units
        self.max_work_group_size = 4096
        self.max_work_item_sizes = [4096, 4096, 4096]
        self.local_mem_size = 2**15
        self.global_mem_size = 2**30
        self.max_mem_alloc_size = 2**28
        self.max_parameter_size = 1024
        self.mem_base_addr_align = 1024
        self.native_vector_width_float = 16
        self.host_unified_memory = 1
        self.broken = broken
        vars(self).update(changes)

    def create_sub_devices(self, properties):
        kind, units = properties
        assert kind == cl.device_partition_property.EQUALLY
        return [f"{self.name}, {units} units, part {i + 1}" for i in range(self.max_compute_units // units)]
