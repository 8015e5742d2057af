"""How the ranks of a job find each other: environment, secret, listener and handshake, control plane."""
