"""Matrix products on a device.

Kernel families are tried in order (`products.FAMILIES`). A product is described by its lengths and strides
(`problem.Problem`). The first family that supports the product computes it with the family's cheapest choice of
launches and kernels (`families`).
"""
