"""Collectives inside functions that XLA compiles, whichever framework asks it to: the compiled library."""
