"""Products of matrices on a device.

A product is described by numbers alone (`problem.Problem`: lengths and strides). Families of kernels compute it. Each
is asked in turn (`products.FAMILIES`) and returns its choices: launches, the kernels that they take, and a price
(`families`). The first family that suits the product computes it, by its cheapest choice.

| family | computes |
|---|---|
| `quad_tiles` | small products of float32 on a GPU, whose numbers lie in aligned fours |
| `tensor_cores` | products below the highest precision, by tiles (`tensor_kernels`) or packed matrices (`warpgroups`) |
| CLBlast | the classes of products for which tuning found it faster |
| `copied` | products of float32 by large tiles, where a device copies in the background |
| tiles | all products, by the kernels that the function was compiled with (`cpu`, `gpu`) |

The kernels of the last family have a tuned block shape for each class of products (`blocks`).
"""
