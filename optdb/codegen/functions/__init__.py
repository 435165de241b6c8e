"""Functions of tensors on a device, for any host: what is computed is fused into few kernels, and then repeated.

A host builds lazy tensors for inputs of known shapes (``tensors``). ``schedule`` decides what is stored, and
``work_units`` in which order, `lowering` writes what a kernel computes of it, ``loops`` and ``targets`` generate the
kernels, and ``execution`` runs and repeats them.
"""
