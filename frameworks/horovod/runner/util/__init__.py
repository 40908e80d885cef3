"""Names of Horovod 0.28 that programs import from here."""
