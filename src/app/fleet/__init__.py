"""`latchboard simulate`: a fleet of devices that exists only while it is played, for load, for show and for trying faults."""
