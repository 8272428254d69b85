"""A runtime that speaks SGLang 0.5.23's HTTP and answers by rule: for tests, benches and a quick look.

Guarantee: it passes the same contract tests as the real server. Answers are deterministic, faults are controllable. It
never passes itself off as a model: `/server_info` says `"scripted": true`.
"""

from embedded.scripted.command import main

__all__ = ["main"]
