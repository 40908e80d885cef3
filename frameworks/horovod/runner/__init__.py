"""The launcher: starts the ranks of a job, shows their output, and ends what it has started."""
