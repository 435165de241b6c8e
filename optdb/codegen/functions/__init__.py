"""Lazy tensors, for any host: what is computed of them is fused into few kernels.

A host builds lazy tensors for inputs of known shapes (``tensors``). ``schedule`` decides what is stored, and
``work_units`` in which order, `lowering` writes what a kernel computes of it, ``loops`` and ``targets`` generate the
kernels. ``optdb.device.functions`` runs them.
"""
