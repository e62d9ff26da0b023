"""Modules that are computed again in backward: `checkpoint_wrapper`."""
