"""Matrix products on a device.

A product is described by numbers alone (`problem.Problem`: lengths and strides). Families of kernels compute it. Each
family is asked in turn (`products.FAMILIES`) and returns its choices: launches, their kernels, and an estimated cost
(`families`). The first family that supports the product computes it, with its cheapest choice.

| family | computes |
|---|---|
| `quad_tiles` | small float32 products on a GPU, whose matrices consist of aligned groups of four numbers |
| `tensor_cores` | products below the highest precision, by tiles (`tensor_kernels`) or packed matrices (`warpgroups`) |
| CLBlast | the classes of products for which tuning found it faster |
| `copied` | float32 products with large tiles, where a device supports asynchronous copies |
| tiles | all products, with the kernels that the function was compiled with (`cpu`, `gpu`) |

The kernels of the last family have a tuned block shape for each class of products (`blocks`). What tuning measured is
in one table for each device (`tuning_table`), which `tune` fills.
"""
