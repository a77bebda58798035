"""The scheduler: admits requests, queues them, and chooses the engine for each.

`service` is the room's door. Behind it, `admission` decides, over the order of those who wait (`queue`), what the
engines have (`engines`), whose placements they are (`owners`), and how fast places come free (`pace`).
"""
