"""Measurements on a GPU: ``steps`` compares training steps with JAX, and ``kernels`` compares single kernels with CuPy.

``jax_nets`` has the nets of `profiles.models`, written for JAX.
"""
