"""NumPy in a trace: arrays, and the functions that take them."""
