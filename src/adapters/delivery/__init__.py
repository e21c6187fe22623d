"""HTTP delivery to untrusted receivers: the couriers, and the guard that keeps them out of private networks."""
