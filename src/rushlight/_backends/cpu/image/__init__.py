"""Resizing, weighted gathers, unpooling."""
