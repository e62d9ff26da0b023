"""Averages of parameters over processes, now and then: what follows local steps."""
