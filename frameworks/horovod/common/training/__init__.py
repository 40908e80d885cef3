"""What the optimizers, gradient tapes and trainers of all adapters share."""
