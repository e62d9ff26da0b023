"""Passes over graphs: from loads and stores to single assignment, exits to conditions, constants, dead code, inlining."""
