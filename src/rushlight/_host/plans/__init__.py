"""Plans that run without Python: their tables, their caches, and the code that runs them."""
