"""What the product does with each kind of job, behind protocols."""
