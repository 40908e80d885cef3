"""Addresses, interfaces, and connections that are proven before anything is read."""
