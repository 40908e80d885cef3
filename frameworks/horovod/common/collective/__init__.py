"""The operations on tensors and objects, from their list (``operations``) to a handle's result."""
