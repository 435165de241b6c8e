"""Matrix products on a device.

Kernel families are tried in order (`products.FAMILIES`). The first family that supports a product, described by its
lengths and strides (`problem.Problem`), computes the product with the family's cheapest choice of launches and kernels
(`families`).
"""
