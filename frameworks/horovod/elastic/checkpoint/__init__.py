"""Checkpoints of elastic training in a folder.

``plain``, ``layout``, ``notes`` and ``history`` decide and describe, and touch no file. ``folder`` and
``lock`` touch the files, ``writer`` and ``reader`` write and read checkpoints with them. ``durability`` is
what a state has of all this.
"""
