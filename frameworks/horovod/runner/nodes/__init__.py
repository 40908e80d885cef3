"""The hosts of a job, each as a node: where ranks are started, watched and ended. ``node`` is the seam."""
