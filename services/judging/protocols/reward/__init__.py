"""Reward models: sequence classifiers with one number, which scores the last turn of a conversation."""
