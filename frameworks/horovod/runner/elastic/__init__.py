"""Elastic jobs: carries out what ``horovod.elastic.driver`` decides."""
