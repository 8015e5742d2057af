"""These tests are of ``make executors``; where Dask and Ray are not installed, they are not collected."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("distributed") and find_spec("ray") else ["test_clusters.py"]
