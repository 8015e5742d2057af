"""What jobs run is no test by itself."""

collect_ignore = ["dear_cases.py", "profiled_job.py"]
