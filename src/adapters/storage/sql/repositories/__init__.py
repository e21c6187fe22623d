"""One module a part: statements as constants on top, below them the methods of the part's ports."""
