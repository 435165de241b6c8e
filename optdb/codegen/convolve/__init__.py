"""Kernels of convolutions in two and three dimensions, and of their gradients.

:mod:`geometry` describes shapes, :mod:`plan` turns them into tables, and kernels read the tables: those of
:mod:`products`, or on GPUs those of :mod:`tiles`. :mod:`operations` checks shapes and handles unshared filters.
"""
