"""A judge family for Assizes, as a package of its own."""
