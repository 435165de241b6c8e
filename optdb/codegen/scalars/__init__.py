"""OpenCL C for scalar functions: types, helper functions, and the functions that OpenCL lacks."""
