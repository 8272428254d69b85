"""Any instruct model as a judge."""
