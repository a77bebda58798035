VERSION = "0.1.0"
"""Version of the package; setup.cfg reads it from here."""
