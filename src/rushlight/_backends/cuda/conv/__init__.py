"""Convolutions as block kernels: products whose rows are gathered from images."""
