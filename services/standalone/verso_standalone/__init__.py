"""Everything on one machine by one command: `verso up` and `verso demo`."""
