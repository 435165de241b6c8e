"""What a GPU does: ``steps`` times training steps, beside JAX; ``kernels`` times single kernels, beside CuPy.

``jax_nets`` has the nets of `profiles.models`, written for JAX.
"""
