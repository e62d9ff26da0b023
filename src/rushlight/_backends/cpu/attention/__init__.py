"""Attention that never stores a matrix of scores."""
