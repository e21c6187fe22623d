"""Where everything is kept. `memory` and `sql` implement the same ports and pass the same contract suite."""
