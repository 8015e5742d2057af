"""What several algorithms share: ring orders, grids, groups of hosts, rounds, and rows made of messages."""
