"""Tensors and what runs them: storage, plans, views, in-place, the backward loop, random streams."""
