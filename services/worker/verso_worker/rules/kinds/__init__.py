"""Which rule runs the slices of each kind of job: the rules are composed, then put into tables."""
