"""The tables of revision 0001. Frozen: later changes are other revisions."""
