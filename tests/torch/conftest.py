"""What jobs run is no test by itself."""

collect_ignore = ["ddp_job.py", "dear_cases.py", "profiled_job.py"]
