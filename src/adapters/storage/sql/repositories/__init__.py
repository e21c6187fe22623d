"""One module per part of the domain: its statements as constants, then the repositories."""
