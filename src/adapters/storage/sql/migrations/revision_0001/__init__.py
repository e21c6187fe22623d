"""The tables of revision 0001. Frozen: what comes later is another revision."""
