"""The async client, written by hand except `operations`. `sync` is generated from this package."""
