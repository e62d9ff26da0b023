"""Layers: activations, attention, convolutions, norms, losses, poolings, recurrence, resizing."""
