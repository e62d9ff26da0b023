"""Tensors that dispatch by their class: the base of them all, and quantized tensors."""
