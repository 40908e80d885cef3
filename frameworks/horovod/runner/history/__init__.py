"""``horovodrun history``: what a training with checkpoints has recorded, as a table and as plots."""
