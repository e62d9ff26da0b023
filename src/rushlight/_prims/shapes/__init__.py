"""Making, moving, selecting, gathering."""
