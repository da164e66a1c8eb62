"""From a trace to what ran in a step: load, step-pick, event-iterate, normalize."""
