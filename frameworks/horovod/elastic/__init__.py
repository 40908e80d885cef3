"""Elastic jobs: training that goes on when workers die, come and go.

``driver`` decides in the launcher which workers there are; everything else here runs in the workers.
"""
