"""``weft run``: start the ranks of a job on this machine, carry their output, and leave no process behind."""
