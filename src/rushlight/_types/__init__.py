"""Dtypes, devices, layouts and specs: a tensor without its memory."""
