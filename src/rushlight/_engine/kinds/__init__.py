"""Tensors of our own kinds: sparse, quantized, and what dispatches by class."""
