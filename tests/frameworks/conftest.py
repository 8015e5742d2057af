"""These tests are of ``make frameworks``; where the frameworks are not installed, they are not collected."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("lightning") else ["test_frameworks.py"]
