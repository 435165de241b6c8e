"""Kernels of convolutions in two and three dimensions, and of their gradients.

:mod:`geometry` describes shapes, :mod:`plan` turns them into tables, and kernels read the tables. :mod:`packing` packs
arrays. :mod:`correlate` computes results and gradients for images, and :mod:`weights` computes gradients for filters.
On GPUs, both use :mod:`tiles`, with tile shapes and kernels from :mod:`tile_kernels`. :mod:`operations` checks shapes,
handles empty arrays, calls these modules, and handles unshared filters itself.
"""
