"""Meaning of the Triton language: types, promotion, and each function as operations of the block IR."""
