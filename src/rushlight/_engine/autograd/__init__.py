"""Nodes, the backward loop, and what users build on them."""
