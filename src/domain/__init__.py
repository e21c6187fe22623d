"""The inside: entities, policies, ports and services. Pure: it imports the standard library only, and of that nothing that
opens, waits, draws random numbers or reads a clock."""
