"""``horovod.run``: a function called on all ranks of a job that is started for it.

The caller starts one child, which is horovodrun but for two things: it serves the pickled function to the
ranks from its store, and keeps the results that they send there. Everything between caller and child goes
through inherited descriptors, and everything between child and ranks through the store, whose links are
authenticated. So nothing of it is seen by other users, and ranks on other hosts need no way of their own.
"""
