"""The stages that turn a trace into a step: load, step-pick, event-iterate, normalize."""
