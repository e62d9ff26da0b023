"""Resizing, reading between elements, unpooling."""
