"""The scheduler: decides which lazy tensors are stored, and orders and fuses the loops that store them."""
