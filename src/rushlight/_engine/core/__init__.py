"""Tensors, their memory and their making."""
