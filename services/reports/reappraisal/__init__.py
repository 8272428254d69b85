"""The report of a reappraisal job: its items, its building, its text."""
