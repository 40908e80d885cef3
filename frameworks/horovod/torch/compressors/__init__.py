"""Compressors of gradients that remember what they left out, one per file."""
