"""The key-value store of a job, and the verdicts that ranks leave there."""
