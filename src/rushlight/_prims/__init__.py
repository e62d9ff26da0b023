"""The primitives: about a hundred strict operations that every operator is written over."""
