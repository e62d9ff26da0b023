"""Sums and their kin, sorting, counting, segments."""
