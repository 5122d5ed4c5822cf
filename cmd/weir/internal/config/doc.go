// Package config turns weir.yaml and the environment into validated values. It is the only place that knows YAML.
//
//	weir.yaml ── Parse ──▶ *Config | *Errors      (pure: no environment, no clock, no file but zones)
//	WEIR_…    ── ReadSettings ──▶ *Settings | *Errors
//	${env:…}, ${file:…} ── Template.Resolve ──▶ a header's value, at the time of each call
//
// Files:
//
//	config.go, api.go           a whole file; one api of it
//	rules.go, rate.go, key.go   an api's bucket and the exceptions for keys; rates; where a job's key stands
//	limit.go, quota.go, cost.go, money.go   limits that keys share; periods; what a job takes from them; amounts and prices
//	admit.go                    limits on what comes in
//	retry.go, breaker.go        what an answer means, and when all calls stop
//	http.go                     which clients may use the HTTP side, and by which names
//	header.go, template.go, token.go, secret.go   headers of calls, references to secrets, what must not be printed
//	ids.go                      a warning that is about the whole file: more ids than fit into memory
//	settings.go, address.go, redacted.go   the environment, addresses in it, and how it may be shown
//	describe.go, diff.go        a configuration as texts by path, and what two differ in
//	document.go, fields.go      the walk through YAML: values with their lines, mappings whose names are known
//	problem.go, suggest.go      what is wrong and how to mend it; the name that was probably meant
//	decimal.go, duration.go, percent.go, size.go   numbers and units as people write them
//
// What holds:
//
//   - Strict: whatever Parse does not understand is a problem, never a guess. A typing error in a limit must not become
//     "no limit", so unknown fields, duplicate keys and missing units are all refused.
//   - All problems of a file are reported at once, each with its line, the path of the field, and how to mend it. A
//     section with a problem is not checked against other sections, so that one mistake is told once.
//   - Numbers are exact. Rates and money are decimals on paper and whole numbers here; no float is involved.
//   - A secret is never in a value of this package: a Template holds the reference, and only Resolve's result holds
//     what it refers to. Messages never quote a header's value, nor a url that may carry a password.
//   - What passes Parse can be counted: every limit lets at least one call through, and its arithmetic stays below
//     2^53, where the numbers of a shared store's scripts are still whole.
//
// A node walk was preferred to decoding into structs with tags: the decoder stops at the first wrong type of a field,
// knows no paths, and accepts 010 as 8 and 1_0 as 10.
package config
