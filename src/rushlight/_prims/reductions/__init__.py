"""Reductions, scans, orders."""
