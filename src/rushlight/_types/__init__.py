"""Dtypes, devices, layouts and specs: what a tensor is, without its memory."""
