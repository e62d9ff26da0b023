"""Recorded programs whose sizes are symbols."""
