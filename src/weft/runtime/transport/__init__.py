"""How a rank reaches the others: shared memory inside a machine, authenticated connections between them."""
