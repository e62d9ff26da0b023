"""Conditions under which what was traced may run again: what was read, and the native words that check it."""
