"""Transforms from graph to graph: reverse and forward mode, batching, simplification, partition."""
