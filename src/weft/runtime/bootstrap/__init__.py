"""Bootstrap of a job: environment, secret, listener and handshake, and the control plane of its ranks."""
