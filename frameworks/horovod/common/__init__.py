"""What every adapter shares. Imports no framework.

Here is the job: its start and end, ranks, process sets, the names of reductions, exceptions. ``collective``
has the operations on tensors and objects, ``training`` how an optimizer reduces and checks its gradients.
"""
