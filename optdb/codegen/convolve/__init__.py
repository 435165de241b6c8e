"""Kernels of convolutions in two and three dimensions, and of their gradients.

:mod:`geometry` describes shapes, :mod:`plan` turns them into tables, and kernels read the tables. :mod:`packing` packs
arrays. :mod:`correlate` computes results and gradients for images, and :mod:`weights` gradients for filters; on GPUs,
both use :mod:`tiles` (:mod:`tile_shapes` chooses a tile, :mod:`tile_kernels` generates its kernel). :mod:`unshared`
computes all three for unshared filters. :mod:`operations` checks shapes, handles empty arrays, and calls the module
that computes.
"""
