"""``weft studio``: the page of a report, live on loopback: edit a cluster and see comparisons as they come.

The server (`studio_server`) answers requests and keeps clusters; `comparison_worker` is the process that
compares, so that a comparison can be cancelled at any moment and never holds up an answer. Only modules that
serve need starlette and uvicorn (``pip install starlette uvicorn``).
"""
