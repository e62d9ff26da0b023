"""Plans: what runs for one signature, its results, and templates for new sizes."""
