"""Kernels of convolutions in two and three dimensions, and of their gradients.

:mod:`geometry` describes shapes, :mod:`plan` turns them into tables, and the kernels of :mod:`products`, or of
:mod:`tiles` on GPUs, read the tables. :mod:`operations` checks shapes and handles unshared filters.
"""
