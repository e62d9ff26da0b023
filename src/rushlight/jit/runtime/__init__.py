"""Runs graphs: each is written once as a function of Python, made of our own names alone."""
