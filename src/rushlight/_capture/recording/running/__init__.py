"""Recorded programs at run time: compiled, called, differentiated, kept on disk."""
