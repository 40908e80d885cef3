"""The command line of horovodrun: its options, where their values come from, and what they set."""
