"""Reappraisals: the gate that they pass, and how the best of several is chosen."""
