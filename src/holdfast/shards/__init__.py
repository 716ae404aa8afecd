"""Several databases behind fronts: installation, routing, checks."""
