"""Backward of compiled programs: from some of their outputs, and of their gradients again."""
