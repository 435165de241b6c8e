"""Measurements on a GPU: ``steps`` times training steps, compared with JAX; ``kernels`` single kernels, with CuPy.

``jax_nets`` has the nets of `profiles.models`, written for JAX.
"""
