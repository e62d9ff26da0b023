"""Generators, and what is drawn from them."""
