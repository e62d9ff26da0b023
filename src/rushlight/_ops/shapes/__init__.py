"""Making, viewing, indexing, moving."""
