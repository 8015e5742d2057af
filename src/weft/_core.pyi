"""Weft's native half: what Python would be too slow for."""



def version() -> str:
    """Return the version this extension was built as."""
