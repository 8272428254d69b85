"""Any instruct model as a pairwise judge."""
