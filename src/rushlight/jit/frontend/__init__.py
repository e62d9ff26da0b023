"""From Python, or from the code of an archive, to graphs."""
