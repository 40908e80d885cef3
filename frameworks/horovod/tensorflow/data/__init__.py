"""Input pipelines of TensorFlow that run on processes of their own: see ``compute_service``."""
