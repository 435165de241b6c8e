"""Matrix products on a device.

Kernel families are tried in order (`products.FAMILIES`). The first family that supports a product, described by its
lengths and strides (`problem.Problem`), computes it with its cheapest choice of launches and kernels (`families`).

- `quad_tiles`: small float32 products on a GPU, with matrices of aligned groups of four numbers
- `tensor_cores`: products below the highest precision, with tiles (`tensor_kernels`) or packed matrices (`warpgroups`)
- CLBlast: the classes of products for which tuning found it faster
- `copied`: float32 products with tiles that a GPU copies asynchronously
- `cpu` and `gpu`: all products, with the function's own kernels, whose block shapes are tuned (`blocks`, `tune`)
"""
