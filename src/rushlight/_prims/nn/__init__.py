"""Attention, recurrence, sliding windows, resampling."""
