"""The report of a judgement: its items, its building, its text."""
