"""What every adapter shares: operations, process sets, exceptions, settings. Imports no framework."""
