"""``horovodrun doctor``: one rank on each host looks at the host and at the links to the others."""
