"""Jobs of our own that look at hosts and links: ``horovodrun doctor`` and ``horovodrun bench``."""
