"""Views, in-place changes and indexing."""
