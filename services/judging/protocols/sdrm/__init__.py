"""SDRM-Qwen3-4B-mask70, a generative pairwise judge."""
