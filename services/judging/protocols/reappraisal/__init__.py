"""Reappraisal-4B-GRPO-Committee and other models that write cognitive reappraisals."""
