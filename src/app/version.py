"""This release's number. It is asked for without importing the program."""

VERSION = "0.1.0"
