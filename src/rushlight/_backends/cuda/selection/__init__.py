"""Results whose shape depends on the data: counted first, then written."""
