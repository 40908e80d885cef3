"""A rank's links to the others."""
