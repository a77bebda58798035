"""The command line. One file per command; each is a thin client of the broker's protocol."""
