"""How the ranks of a job are started, one module per way."""
