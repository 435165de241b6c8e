"""Kernels of convolutions in two and three dimensions, and of their gradients.

Shapes become :mod:`geometry`, geometry becomes tables (:mod:`plan`), and kernels read these: :mod:`packing` lays
arrays out, :mod:`correlate` computes results and gradients for images, :mod:`weights` gradients for filters, both by
:mod:`tiles` on graphics cards (:mod:`tile_shapes` chooses a tile, :mod:`tile_kernels` writes its kernel),
:mod:`unshared` all three for filters that are not shared. :mod:`operations` checks shapes, handles empty arrays, and
calls the module that computes.
"""
