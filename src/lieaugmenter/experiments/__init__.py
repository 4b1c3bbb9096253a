"""The paper, experiment by experiment, with its own numbers beside ours."""
