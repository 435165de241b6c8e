"""Matrix products on a device.

A product is described by its lengths and strides alone (`problem.Problem`). Kernel families are tried in order
(`products.FAMILIES`). Each returns its choices: launches, their kernels, and an estimated cost (`families`). The first
family that supports the product computes it, with its cheapest choice.

| family | computes |
|---|---|
| `quad_tiles` | small float32 products on a GPU, whose matrices consist of aligned groups of four numbers |
| `tensor_cores` | products below the highest precision, with tiles (`tensor_kernels`) or packed matrices (`warpgroups`)
| | CLBlast | the classes of products for which tuning found it faster | | `copied` | float32 products with large tiles,
where a device supports asynchronous copies | | tiles | all products, with the kernels that the function was compiled
with (`cpu`, `gpu`) |

Kernels in the last family have a tuned block shape for each class of products (`blocks`). `tune` stores its
measurements in one table per device (`tuning_table`).
"""
