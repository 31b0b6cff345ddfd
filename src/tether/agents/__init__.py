"""The turn loop: how a policy and an environment make records."""

from tether.agents.turn_loop import Agent, Task, make_builder, play, render_state

__all__ = ["Agent", "Task", "make_builder", "play", "render_state"]
