"""Batching, forward mode and functional transforms over tensors."""
