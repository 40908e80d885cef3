"""Puts a job together: who each process is, where the others are, and authenticated links to all of them."""
