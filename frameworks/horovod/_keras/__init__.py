"""What ``horovod.keras`` and ``horovod.tensorflow.keras`` share; the module ``keras`` is handed in."""
