"""Which BLAS NumPy was built with: NumPy has not told since version 1.22. optdb looks for one itself."""

blas_opt_info: dict[str, object] = {}
