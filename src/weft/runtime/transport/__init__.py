"""The transport: shared memory inside a machine, authenticated connections between machines."""
