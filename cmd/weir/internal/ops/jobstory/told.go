package jobstory

import "weir/deadletter"

// toldText describes an event about a job.
func toldText(e *deadletter.KeptEvent) string { return "event " + string(e.Type) + ": " + e.Text() }
