"""Graphs of primitives: building, reading, checking, rewriting and printing them."""
