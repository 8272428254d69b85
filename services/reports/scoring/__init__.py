"""The report of a scoring job: its items, its building, its text."""
