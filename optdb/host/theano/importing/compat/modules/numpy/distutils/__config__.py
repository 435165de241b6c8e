"""The BLAS that NumPy was built with: unknown since NumPy 1.22. optdb looks for a BLAS itself."""

blas_opt_info: dict[str, object] = {}
