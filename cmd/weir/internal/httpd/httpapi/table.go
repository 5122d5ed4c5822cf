package httpapi

import (
	"slices"
	"strconv"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/joblist"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/ops/verify"
	"weir/cmd/weir/internal/ops/whatif"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/proposal"
	"weir/dispatcher/inquiry"
)

// table returns all routes except those of sessions, which package console serves. Each route has its path, the role
// that a request needs, the bounds of a request, and the function that answers it.
func (a *API) table() []route {
	return slices.Concat(a.overviewRoutes(), a.bucketRoutes(), a.jobRoutes(), a.letterRoutes(), a.redriveRoutes(), a.configRoutes(), a.whatIfRoutes())
}

// overviewRoutes returns the routes of weir's state.
func (a *API) overviewRoutes() []route {
	return []route{
		{
			method: "GET", path: "/status", name: "getStatus", role: console.Viewer, answer: &status.Status{},
			summary: "The state of weir and its problems: health, apis, pauses and holds, use of limits, spend of today, letters, replicas (weir status)",
			serve:   a.overview.tellStatus,
		},
		{
			method: "GET", path: "/apis", name: "listAPIs", role: console.Viewer, answer: apiList{}, summary: "The apis, with the fields of weir status",
			serve: a.overview.apis,
		},
		{
			method: "GET", path: "/limits", name: "listLimits", role: console.Viewer, answer: limitList{}, summary: "Every shared limit, and how much of it is used",
			serve: a.overview.limits,
		},
		{
			method: "GET", path: "/replicas", name: "listReplicas", role: console.Viewer, answer: replicaList{}, summary: "The dispatching replicas, and how many replicas accept jobs",
			serve: a.overview.replicas,
		},
		{
			method: "GET", path: "/doctor", name: "examine", role: console.Viewer, answer: findingList{}, atOnce: 1, time: longRead,
			summary: "Findings that will cause trouble, each with its fix, on this replica (weir doctor). No api is called",
			serve:   a.overview.examine,
		},
		{
			method: "GET", path: "/version", name: "getVersion", role: console.AnyRole, answer: cli.Build{}, summary: "The version of the answering weir (weir version)",
			serve: version,
		},
		{
			method: "GET", path: "/events", name: "listEvents", role: console.Viewer, answer: eventList{}, atOnce: readsAtOnce,
			summary: "The kept events, the newest first: CloudEvents as they were sent (weir events tail)",
			query:   []parameter{eventType(), {name: "api", summary: "only about this api; _ for those about none", kind: text}, {name: "key", summary: "only about this key", kind: text}, since, listLimit},
			serve:   a.events.list,
		},
		{
			method: "GET", path: "/history", name: "getHistory", role: console.Viewer, answer: pastOf{}, atOnce: 4 * readsAtOnce,
			summary: "The flow in and out of an api, or of one of its deepest buckets, in the last 15 minutes, in steps of 5 seconds: for drawings",
			query:   []parameter{{name: "api", summary: "of this api", kind: text}, {name: "key", summary: "of this key", kind: text}},
			serve:   a.past.tell,
		},
		{
			method: "GET", path: "/stream", name: "stream", role: console.Viewer, answer: &Snapshot{}, time: console.Endless,
			summary: "Server-sent events: a snapshot each second (event: snapshot), events as they come (event: event, with the number of its message as id), " +
				"and each second a sign of life (event: here), even while a snapshot takes longer. " +
				"With Last-Event-ID, the events after that one come first. The stream ends after 15 minutes",
			stream: a.hub.serve,
		},
		{
			method: "GET", path: "/openapi.json", name: "getDocument", role: console.AnyRole, answer: map[string]any{}, summary: "This document", stream: serveDocument,
		},
	}
}

// bucketRoutes returns the routes of buckets and pauses.
func (a *API) bucketRoutes() []route {
	return []route{
		{
			method: "GET", path: "/apis/{api}/keys", name: "listKeys", role: console.Viewer, answer: keyList{}, atOnce: 2 * readsAtOnce,
			summary: "An api's buckets that hold unfinished jobs, the deepest first (weir keys). Depths change between two pages: a key may be on both, or on neither",
			query: []parameter{
				keysLimit,
				{name: "after", summary: "next of the page before", kind: text},
				{name: "match", summary: "only keys that contain this", kind: text},
			},
			serve: a.buckets.list,
		},
		{
			method: "GET", path: "/apis/{api}/keys/{key}", name: "showKey", role: console.Viewer, answer: &admin.KeyShown{},
			summary: "One bucket with its next jobs, its rate, and why it waits (weir show). The key is percent-encoded",
			query:   []parameter{jobsLimit}, serve: a.buckets.show,
		},
		{
			method: "GET", path: "/apis/{api}/key", name: "showKeyNamed", role: console.Viewer, answer: &admin.KeyShown{},
			summary: "The same for a key that no path can contain, such as . and ..",
			query:   []parameter{keyNamed, jobsLimit}, serve: a.buckets.show,
		},
		{
			method: "POST", path: "/apis/{api}/pause", name: "pauseAPI", role: console.Operator, body: pauseWord{}, answer: &admin.OperatorCommand{},
			summary: "Pause an api (weir pause). The answer comes when every replica that may call has it in force", serve: a.pauses.pause,
		},
		{
			method: "POST", path: "/apis/{api}/resume", name: "resumeAPI", role: console.Operator, answer: &admin.OperatorCommand{},
			summary: "Resume a paused api, or try one again that kept failing (weir resume)", serve: a.pauses.resume,
		},
		{
			method: "POST", path: "/apis/{api}/keys/{key}/pause", name: "pauseKey", role: console.Operator, body: pauseWord{}, answer: &admin.OperatorCommand{},
			summary: "Pause a key (weir pause)", serve: a.pauses.pause,
		},
		{
			method: "POST", path: "/apis/{api}/keys/{key}/resume", name: "resumeKey", role: console.Operator, answer: &admin.OperatorCommand{},
			summary: "Resume a paused key (weir resume)", serve: a.pauses.resume,
		},
		{
			method: "POST", path: "/apis/{api}/key/pause", name: "pauseKeyNamed", role: console.Operator, body: pauseWord{}, answer: &admin.OperatorCommand{},
			query: []parameter{keyNamed}, summary: "Pause a key that no path can contain, such as . and ..", serve: a.pauses.pause,
		},
		{
			method: "POST", path: "/apis/{api}/key/resume", name: "resumeKeyNamed", role: console.Operator, answer: &admin.OperatorCommand{},
			query: []parameter{keyNamed}, summary: "Resume such a key", serve: a.pauses.resume,
		},
	}
}

// jobRoutes returns the routes of jobs, of results and of spending.
func (a *API) jobRoutes() []route {
	return []route{
		{
			method: "GET", path: "/jobs", name: "listJobs", role: console.Viewer, answer: joblist.Page{}, atOnce: 2 * readsAtOnce,
			summary: "Jobs, the newest first by when they came to their state: waiting, being called, polled, done, dead (weir jobs). " +
				"A page may have fewer jobs than its limit, or none, and yet a next",
			query: []parameter{
				ofAPI, keyOfAny, jobState(),
				{name: "status", summary: "only with this last answer, as in 503 or 5xx; 0 for dead letters without one", kind: text},
				{name: "since", summary: "only that came to their state from this RFC 3339 time on, or from this long ago, as in 2h or 1d", kind: instant},
				{name: "until", summary: "only before this time, or until this long ago", kind: instant},
				{name: "id", summary: "only whose ids contain this", kind: text},
				{name: "after", summary: "next of the page before", kind: text},
				listLimit,
			},
			serve: a.jobs.list,
		},
		{
			method: "GET", path: "/jobs/{id}", name: "findJob", role: console.Viewer, answer: &jobstory.Timeline{}, atOnce: readsAtOnce, time: longRead,
			summary: "Where a job is or what became of it: its timeline (weir job). With api and key weir reads only their messages, which is fast",
			query:   []parameter{ofAPI, ofKey}, serve: a.jobs.find,
		},
		{
			method: "POST", path: "/apis/{api}/jobs/{id}/cancel", name: "cancelJob", role: console.Operator, body: cancelWord{}, answer: cancelled{}, time: longRead, atOnce: readsAtOnce,
			summary: "End a job that has not been called yet (weir cancel): it becomes a dead letter", serve: a.jobs.cancel,
		},
		{
			method: "GET", path: "/results", name: "listResults", role: console.Viewer, answer: resultList{}, atOnce: readsAtOnce,
			summary: "Results, the newest first, without their bodies (weir results ls)",
			query:   []parameter{ofAPI, ofKey, since, before, listLimit}, serve: a.results.list,
		},
		{
			method: "GET", path: "/results/{api}/{id}", name: "getResult", role: console.Viewer, answer: jobstory.KeptResult{}, atOnce: readsAtOnce, time: longRead,
			summary: "A job's result (weir results get). Only operators get its body", query: []parameter{{name: "key", summary: "the job's key: then only its results are read", kind: text}},
			serve: a.results.show,
		},
		{
			method: "GET", path: "/spend", name: "getSpend", role: console.Viewer, answer: &spend.Account{},
			summary: "The spending, by sums of the ledger, and the state of the budgets (weir spend): today, and by day in the last 31 days. since begins with its minute, or its quarter of an hour: the answer says from when on it counts",
			query:   []parameter{groupBy, ofAPI, since, listLimit}, serve: a.spending.tell,
		},
		{
			method: "GET", path: "/apis/{api}/use", name: "getLimitUse", role: console.Viewer, answer: &spend.Use{},
			summary: "How an api's limits were used in the last 24 hours, by sums of the ledger, in parts of a quarter of an hour", serve: a.spending.use,
		},
	}
}

func jobState() parameter {
	p := parameter{name: "state", summary: "only in this state", kind: text}
	for _, s := range joblist.States() {
		p.words = append(p.words, string(s))
	}
	return p
}

// letterRoutes returns the routes of dead letters.
func (a *API) letterRoutes() []route {
	return []route{
		{
			method: "GET", path: "/dead", name: "listLetters", role: console.Viewer, answer: letterList{}, atOnce: readsAtOnce, time: longRead,
			summary: "Dead letters, the newest first, without their bodies (weir dead ls)", query: choosing(before, listLimit), serve: a.letters.list,
		},
		{
			method: "GET", path: "/dead/stats", name: "countLetters", role: console.Viewer, answer: causeList{}, atOnce: 2, time: longRead,
			summary: "Dead letters counted by api, reason, status and bill (weir dead stats). The first question reads the headers of all of them, as does each that asks for a key or a job", query: choosing(),
			serve: a.letters.count,
		},
		{
			method: "GET", path: "/dead/{seq}", name: "showLetter", role: console.Viewer, answer: deadview.Letter{},
			summary: "One dead letter (weir dead show): without its body, the body of the api's answer, and the values of the headers that its producer chose",
			serve:   a.letters.show,
		},
		{
			method: "POST", path: "/dead/{seq}/reveal", name: "revealLetter", role: console.Operator, answer: deadview.Letter{},
			summary: "One dead letter with its body, the api's answer and its headers (weir dead show --json). An event names the user", serve: a.letters.reveal,
		},
		{
			method: "POST", path: "/dead/{seq}/reconcile", name: "reconcileLetter", role: console.Operator, answer: inquiry.Reconciled{}, time: 2 * longRead, atOnce: readsAtOnce,
			summary: "Send the api's inquiry about the call of a letter with the reason unknown (weir dead reconcile)", serve: a.letters.reconcile,
		},
		{
			method: "POST", path: "/dead/purge", name: "purgeLetters", role: console.Operator, body: purgeWord{}, answer: &deadview.Purge{}, time: 10 * longRead, atOnce: 1,
			summary: "Delete dead letters for good, or with dry_run only say how many (weir dead purge)", serve: a.letters.purge,
		},
		{
			method: "GET", path: "/dead/export", name: "exportLetters", role: console.Operator, answer: deadview.Exported{}, answerType: jsonLines,
			atOnce: exportsAtOnce, time: console.Endless, query: choosing(),
			summary: "Dead letters, whole, one a line, the oldest first, to be imported again (weir dead export). An event names the user that exported them. " +
				"An export that fails closes the connection",
			stream: a.transfers.exportLetters,
		},
		{
			method: "POST", path: "/dead/import", name: "importLetters", role: console.Operator, body: deadview.Exported{}, bodyType: jsonLines, maxBody: mostImport,
			answer: deadview.Imported{}, atOnce: 1, time: console.Endless, query: []parameter{{name: "dry_run", summary: "only say whether they can be imported", kind: yes}},
			summary: "Store dead letters that were exported (weir dead import): as letters, never as jobs. Letters that are already stored are skipped", serve: a.transfers.importLetters,
		},
	}
}

// redriveRoutes returns the routes of redrives.
func (a *API) redriveRoutes() []route {
	stop := route{
		method: "POST", path: "/redrives/{name}/stop", name: "stopRedrive", role: console.Operator, answer: deadview.RedriveTask{},
		summary: "Stop a redrive until it is resumed (weir dead stop). Jobs already submitted stay submitted", serve: a.redrives.stop,
	}
	remove := stop
	remove.method, remove.path, remove.name, remove.summary = "DELETE", "/redrives/{name}", "cancelRedrive", "The same as stop"
	return []route{
		{
			method: "POST", path: "/dead/redrive/plan", name: "planRedrive", role: console.Operator, body: redriveWord{}, answer: deadview.RedrivePlan{}, time: longRead, atOnce: 2,
			summary: "What a redrive would do: how many, what they cost, how long it takes, how many would overflow again (weir dead redrive --dry-run)", serve: a.redrives.plan,
		},
		{
			method: "POST", path: "/redrives", name: "startRedrive", role: console.Operator, body: redriveOrder{}, maxBody: redriveBody, answer: deadview.RedriveTask{}, time: longRead, atOnce: 2,
			summary: "Submit the jobs of dead letters again (weir dead redrive --detach): a replica carries it out, even if the client goes away", serve: a.redrives.start,
		},
		{
			method: "GET", path: "/redrives", name: "listRedrives", role: console.Viewer, answer: redriveList{},
			summary: "The redrives, the newest first (weir dead tasks)", serve: a.redrives.list,
		},
		{
			method: "GET", path: "/redrives/{name}", name: "showRedrive", role: console.Viewer, answer: deadview.RedriveTask{},
			summary: "One redrive: how far it is, and the outcome of its letters (weir dead task)", serve: a.redrives.show,
		},
		stop, remove,
		{
			method: "POST", path: "/redrives/{name}/resume", name: "resumeRedrive", role: console.Operator, answer: deadview.RedriveTask{},
			summary: "Resume a redrive that was stopped or has failed (weir dead resume)", serve: a.redrives.resume,
		},
	}
}

// configRoutes returns the routes of the configuration.
func (a *API) configRoutes() []route {
	return []route{
		{
			method: "GET", path: "/config", name: "showConfig", role: console.Viewer, answer: admin.ShownVersion{},
			summary: "The configuration in force; secrets are in it by reference only (weir config show)",
			serve:   a.versions.current,
		},
		{
			method: "GET", path: "/config/explain", name: "explainConfig", role: console.Viewer, answer: explanation{},
			summary: "Every value in force, with the line, the vendor's page or the default that it comes from (weir config show --explain)",
			serve:   a.versions.explain,
		},
		{
			method: "GET", path: "/config/history", name: "listVersions", role: console.Viewer, answer: versionList{},
			summary: "The versions of the configuration that are kept, the newest first (weir config history)",
			serve:   a.versions.list,
		},
		{
			method: "GET", path: "/config/versions/{version}", name: "showVersion", role: console.Viewer, answer: admin.ShownVersion{},
			summary: "One version of the configuration",
			serve:   a.versions.show,
		},
		{
			method: "GET", path: "/config/diff", name: "compareVersions", role: console.Viewer, answer: difference{},
			summary: "The differences between two versions of the configuration. from defaults to the version before to, and to defaults to the version in force",
			query:   []parameter{{name: "from", summary: "a version", kind: text}, {name: "to", summary: "a version", kind: text}},
			serve:   a.versions.compare,
		},
		{
			method: "POST", path: "/config/check", name: "checkConfig", role: console.Viewer, body: configCheck{}, maxBody: configBody,
			answer: proposal.Verdict{}, atOnce: 2,
			summary: "Find everything that is wrong with a configuration (weir config check). It changes nothing", serve: a.proposals.check,
		},
		{
			method: "POST", path: "/config/apply", name: "applyConfig", role: console.Operator, body: configText{}, maxBody: configBody, answer: proposal.Applied{}, time: longRead, atOnce: 1,
			summary: "Put a configuration in force, or with dry_run only say what would change (weir config apply)", serve: a.proposals.apply,
		},
		{
			method: "POST", path: "/config/rollback", name: "rollbackConfig", role: console.Operator, body: rollbackWord{}, answer: proposal.Applied{}, time: longRead, atOnce: 1,
			summary: "Put an earlier version of the configuration in force again (weir config rollback)", serve: a.proposals.rollback,
		},
	}
}

// whatIfRoutes returns the routes of plans and verifications.
func (a *API) whatIfRoutes() []route {
	return []route{
		{
			method: "POST", path: "/plan", name: "plan", role: console.Operator, body: "time,key\n0,customer-1\n", bodyType: "text/csv", maxBody: mostTrace,
			answer: &whatif.Outcome{}, atOnce: 1, time: planTime,
			query: []parameter{
				{name: "api", summary: "begin with the limits of this api; without it rate and capacity are needed", kind: text},
				{name: "rate", summary: "the bucket's rate, as in 10/s", kind: text},
				planCapacity, planBurst, planInFlight,
				{name: "counts", summary: "how the api counts", kind: text, words: []string{string(bucket.ByWindow), string(bucket.ByTokens)}},
				{name: "call_time", summary: "how long every call takes, as in 200ms", kind: text},
				{name: "suggest", summary: "seek the smallest capacity at which nothing overflows", kind: yes},
				{name: "longest_wait", summary: "with suggest: seek the slowest rate at which no job waits longer, as in 30s", kind: text},
			},
			summary: "What a rate and a capacity would have done to recorded arrivals (weir plan). The body is the trace, as CSV with the columns time, key and optionally cost, " +
				"or as JSON lines, of at most " + strconv.Itoa(mostArrivals) + " arrivals. It changes nothing",
			serve: a.whatIf.rehearse,
		},
		{
			method: "POST", path: "/outlook", name: "outlook", role: console.Operator, answer: &outlook.Outlook{}, atOnce: 1, time: planTime,
			query: []parameter{
				{name: "api", summary: "only of this api; needed if there are several, unless account is named", kind: text},
				{name: "account", summary: "of all apis of this account together", kind: text},
				{name: "since", summary: "the jobs that came from then on; needed", kind: instant},
			},
			summary: "What the limits in force would have done to the jobs that the ledger and the letters recorded, what would be enough, and what their growth brings " +
				"(weir plan --since), of at most " + strconv.Itoa(mostPlannedCalls) + " calls. It changes nothing",
			serve: a.whatIf.outlook,
		},
		{
			method: "POST", path: "/verify", name: "verify", role: console.Operator, answer: &verify.Findings{}, atOnce: 1, time: verifyTime,
			query: []parameter{{name: "api", summary: "only of this api", kind: text}, {name: "since", summary: "only calls from then on; absent: since the limits were last changed", kind: instant}},
			summary: "Check every recorded call against the limits (weir verify), of at most " + strconv.Itoa(mostVerifiedCalls) + " calls and " + strconv.Itoa(mostVerifiedKeys) +
				" keys; a second call of a job is found among the last " + strconv.Itoa(mostVerifiedJobs) + " jobs. It changes nothing",
			serve: a.whatIf.verify,
		},
	}
}
