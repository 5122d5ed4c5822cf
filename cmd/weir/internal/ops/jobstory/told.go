package jobstory

import "weir/deadletter"

// toldText says in a sentence what an event reports about its job.
func toldText(e *deadletter.KeptEvent) string { return "event " + string(e.Type) + ": " + e.Text() }
