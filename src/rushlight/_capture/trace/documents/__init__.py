"""Documents: traces as programs of calls, for other backends."""
