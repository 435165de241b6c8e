"""Kernels of convolutions in two and three dimensions, and of their gradients.

:mod:`geometry` describes shapes, :mod:`plan` turns them into tables, and kernels read the tables. :mod:`packing` packs
arrays. :mod:`correlate` computes results and gradients for images, and :mod:`weights` gradients for filters; on GPUs,
both use :mod:`tiles` (:mod:`tile_kernels` has tile shapes, and generates their kernels). :mod:`operations` checks
shapes, handles empty arrays, calls the module that computes, and computes unshared filters itself.
"""
