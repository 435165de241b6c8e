"""Loop fusion on the device: elementwise ops are fused with each other and with reductions into kernels."""
