def load(*a): return None
