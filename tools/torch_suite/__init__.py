"""PyTorch's own tests of its backends, run with backend weft beside gloo: ``make torch-suite SHARD=1/4``.

The wheel of torch ships the tests that its own backends must pass. They are written for the backends that
torch knows by name; `torch_suite.translation` says how they come to judge Weft. One process runs them one
after the other (`torch_suite.worker`), another watches it (`torch_suite.watch`), and what came of them is
compared with what gloo's run gave (`torch_suite.comparison`). docs/torch-suite.md says how to use it.
"""
