"""Turn a trace into a step, in four stages: load, step-pick, event-iterate, normalize."""
