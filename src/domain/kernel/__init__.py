"""The kernel that every part uses: ids, errors, clock, callers, domain events and the unit of work."""
