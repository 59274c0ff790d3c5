"""A whole platform on one machine: `verso up`, `demo`, `backup`, `restore` and more."""
