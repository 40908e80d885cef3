"""How far a job is while it runs, for ``horovodrun top`` and ``--metrics``."""
