"""What every part stands on: ids, errors, the clock, who calls, what happened, and the unit of work."""
