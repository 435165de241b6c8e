"""Reductions over axes: sums, products, extrema and others, with a fused prologue and epilogue."""
