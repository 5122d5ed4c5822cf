package schema

import (
	"slices"
	"strings"
)

// Subjects returns weir's subjects on NATS as AsyncAPI 3.0, with a line break at the end. The operations are described
// from weir's side: weir receives jobs.
func Subjects() []byte {
	reasons := namesOf(rows("dead-letters", "reason"))
	return encode(object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "weir", "version": "1.0.0",
			"description": "Jobs on their way to paid APIs: handed in on weir.jobs, answered with a receipt or a refusal, ended by a result or a dead letter.",
		},
		"defaultContentType": "application/json",
		"channels":           channels(reasons),
		"operations":         operations(),
		"components":         object{"messages": messages(reasons)},
	})
}

// channels returns the subjects.
func channels(reasons []string) object {
	api := object{"description": "the name of a configured api"}
	key := object{"description": "the key as one token: bytes other than A-Z a-z 0-9 - _ as %XX; _ for none"}
	channel := func(address any, description string, parameters object, messages ...string) object {
		refs := object{}
		for _, m := range messages {
			refs[m] = object{"$ref": "#/components/messages/" + m}
		}
		c := object{"address": address, "description": description, "messages": refs}
		if parameters != nil {
			c["parameters"] = parameters
		}
		return c
	}
	return object{
		"jobs": channel("weir.jobs.{api}.{key}", "Jobs of apis whose key stands in the subject; further tokens belong to the key. In no stream.",
			object{"api": api, "key": key}, "job"),
		"keylessJobs": channel("weir.jobs.{api}", "Jobs of apis that take the key from a header or from the body. In no stream.",
			object{"api": api}, "job"),
		"answers": channel(nil, "The reply subject of a job.", nil, "receipt", "refusal"),
		"ends":    channel(nil, "The subject in Weir-Reply-To: one message, when the job has ended. Not kept.", nil, "result", "notice"),
		"results": channel("weir.results.{api}.{key}", "Results, in the stream WEIR_RESULTS.", object{"api": api, "key": key}, "result"),
		"letters": channel("weir.dead.{api}.{reason}.{key}", "Dead letters, in the stream WEIR_DEAD.",
			object{"api": api, "key": key, "reason": object{"description": "why it will not be called", "enum": reasons}}, "letter"),
		"events": channel("weir.events.{type}.{api}.{key}", "CloudEvents, in the stream WEIR_EVENTS.",
			object{"api": api, "key": key, "type": object{"description": "what happened", "enum": namesOf(rows("events", "type"))}}, eventMessages()...),
		"calls": channel("weir.calls.{api}.{key}", "The ledger: a record of every call, in the stream WEIR_CALLS.", object{"api": api, "key": key}, "call"),
	}
}

func operations() object {
	on := func(action, channel, title string) object {
		return object{"action": action, "title": title, "channel": object{"$ref": "#/channels/" + channel}}
	}
	take, takeKeyless := on("receive", "jobs", "Take a job"), on("receive", "keylessJobs", "Take a job with its key inside")
	for _, o := range []object{take, takeKeyless} {
		o["reply"] = object{"channel": object{"$ref": "#/channels/answers"}}
	}
	return object{
		"takeJob": take, "takeKeylessJob": takeKeyless,
		"tellEnd": on("send", "ends", "Send a job's end to the waiting producer"), "storeResult": on("send", "results", "Store a result"),
		"storeLetter": on("send", "letters", "Store a dead letter"), "tellEvent": on("send", "events", "Tell an event"),
		"recordCall": on("send", "calls", "Record a call"),
	}
}

func messages(reasons []string) object {
	anything := object{"description": "any bytes"}
	ofLetters := headers(rows("dead-letters", "header"))
	ofLetters["properties"].(object)["Weir-Dead-Reason"].(object)["enum"] = reasons
	notice := headers(rows("dead-letters", "header"))
	notice["properties"].(object)["Weir-Outcome"] = object{"type": "string", "enum": reasons, "description": "the reason"}
	receipt, refusal := answer("receipt", "stream", "seq", "job", "key", "position"), answer("refusal", "error", "stream", "seq")
	refusal["properties"].(object)["error"] = object{
		"type": "object", "required": []string{"code", "err_code", "description"}, "additionalProperties": false,
		"properties": object{
			"code": object{"type": "integer"}, "err_code": object{"type": "integer", "enum": errCodes()}, "description": object{"type": "string"},
		},
	}
	all := object{
		"job":     object{"title": "A job", "headers": headers(rows("jobs", "header")), "payload": anything},
		"receipt": object{"title": "The job is on disk", "payload": receipt},
		"refusal": object{"title": "The job was not taken", "payload": refusal, "headers": object{
			"type": "object", "properties": object{"Nats-Service-Error": object{"type": "string"}, "Nats-Service-Error-Code": object{"type": "string"}},
		}},
		"result": object{"title": "What the api answered", "headers": headers(rows("results", "header")), "payload": anything},
		"notice": object{"title": "A job became a dead letter", "headers": notice, "payload": object{"maxLength": 0}},
		"letter": object{"title": "A dead letter: the job's own body and headers, and why", "headers": ofLetters, "payload": anything},
		"call":   object{"title": "A call, as the ledger has it", "payload": object{"type": "object", "properties": properties(rows("ledger", "field"))}},
	}
	for _, r := range rows("events", "type") {
		all[eventMessage(r.names[0])] = event(r)
	}
	return all
}

// namesOf returns the names of rows.
func namesOf(of []row) (names []string) {
	for _, r := range of {
		names = append(names, r.names...)
	}
	return names
}

// headers returns the schema of a message's headers. Each header is a string; a message may have further headers.
func headers(of []row) object {
	all := object{}
	for _, r := range of {
		for _, name := range r.names {
			all[name] = object{"type": "string", "description": plain(r.cell("meaning"))}
		}
	}
	return object{"type": "object", "properties": all}
}

// answer returns the schema of an answer to a producer. It has the members that the topic jobs lists under the heading
// kind, and those that every answer has.
func answer(kind string, required ...string) object {
	var of []row
	for _, r := range rows("jobs", "field") {
		everywhere := slices.ContainsFunc(r.names, func(name string) bool { return slices.Contains(required, name) || name == "job" })
		if everywhere || strings.HasSuffix(r.heading, kind) {
			of = append(of, r)
		}
	}
	return object{"type": "object", "required": required, "properties": properties(of)}
}

// properties returns the members of a JSON object. A member has a type if its type is fixed.
func properties(of []row) object {
	all := object{}
	for _, r := range of {
		for _, name := range r.names {
			p := object{"description": plain(r.cell("meaning"))}
			if kind := kindOf(name); kind != "" {
				p["type"] = kind
			}
			all[name] = p
		}
	}
	return all
}

// kindOf returns the JSON type of a member of answers, events or records. It returns "" if the type is not fixed.
func kindOf(name string) string {
	switch name {
	case "seq", "position", "eta_ms", "retry_after_ms", "dead_letter_seq", "depth", "capacity", "attempts", "status", "refusals", "percent",
		"old_version", "new_version", "call", "attempt", "redrives":
		return "integer"
	case "duplicate", "over_soft", "shadow", "sent", "final":
		return "boolean"
	case "stream", "job", "key", "eta", "reason", "detail", "api", "outcome", "why", "who", "limit", "instance", "specversion", "id", "source",
		"type", "subject", "datacontenttype", "traceparent", "dedupe":
		return "string"
	case "time":
		return "string"
	}
	return ""
}

func errCodes() (codes []int) {
	for _, r := range rows("jobs", "err_code") {
		n := 0
		for _, digit := range r.names[0] {
			n = n*10 + int(digit-'0')
		}
		codes = append(codes, n)
	}
	return codes
}

func eventMessage(kind string) string { return kind + "Event" }

func eventMessages() (all []string) {
	for _, kind := range namesOf(rows("events", "type")) {
		all = append(all, eventMessage(kind))
	}
	return all
}

// event returns the message of one type of event.
func event(r row) object {
	envelope, data := object{}, object{}
	for _, f := range rows("events", "field") {
		p := object{"description": plain(f.cell("holds"))}
		if kind := kindOf(f.names[0]); kind != "" {
			p["type"] = kind
		}
		envelope[f.names[0]] = p
	}
	for _, name := range inBackticks(r.cell("data")) {
		p := object{}
		if kind := kindOf(name); kind != "" {
			p["type"] = kind
		}
		data[name] = p
	}
	envelope["type"].(object)["const"] = "weir." + r.names[0] + ".v1"
	envelope["data"] = object{"type": "object", "properties": data, "additionalProperties": false}
	return object{
		"title": plain(r.cell("when")), "contentType": "application/cloudevents+json",
		"payload": object{"type": "object", "required": []string{"specversion", "id", "source", "type", "time", "data"}, "properties": envelope},
	}
}
