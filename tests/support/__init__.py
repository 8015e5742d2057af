"""What several test folders share; `pythonpath` in pyproject.toml makes it importable as `support`."""
