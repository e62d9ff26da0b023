"""Graphs from what a call does: `torch.jit.trace`."""
