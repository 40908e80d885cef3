"""Decides which workers an elastic job has. Pure: events and times in, decisions out."""
