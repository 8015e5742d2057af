"""Benchmarks of the runtime: how long collectives take here, beside other runtimes doing the same.

The command that measures is the controller. It starts a job of rank processes for each runtime and gives them
orders over a socket; between orders they sleep, so that only one runtime at a time uses the machine.
"""
