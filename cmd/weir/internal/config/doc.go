// Package config turns weir.yaml into a validated Config. Below it are the packages with which it does that, and above
// it is the one that reads the environment. Only these packages know YAML.
//
//	weir.yaml ── Parse ──▶ *Config | *problem.Errors      (pure: no environment, no clock, no file but zones)
//	WEIR_…    ── environment.Read ──▶ *environment.Settings | *problem.Errors
//	${env:…}, ${file:…} ── secret.Template.Resolve ──▶ a header's value, at the time of each call
//
// Packages, from the lowest:
//
//	problem       what is wrong and how to mend it; the name that was probably meant
//	grammar       numbers, money, sizes, durations, rates, quotas and names as people write them
//	secret        texts with references to secrets, which references may be used, what must not be printed
//	field         the registry of fields: how a mapping is read, compared and described. It says how to add a field
//	vendors       what each vendor documents, and how that fills in an api
//	config        the file
//	environment   the registry of variables, and how weir signs in to NATS
//
// Files of this package:
//
//	config.go, api.go           a whole file, with the checks across it; one api
//	rules.go, key.go            an api's bucket, the exceptions for keys and what is accepted; where a job's key stands
//	limit.go, quota.go          limits that keys share; periods
//	account.go                  limits that several apis share
//	shares.go                   parts of these limits for sites, and what a new file may do to them
//	cost.go, answer.go          what a job takes from limits and budgets; numbers of answers
//	retry.go                    what an answer means, and when all calls stop
//	reuse.go                    when a job gets the answer of an equal one
//	pack.go                     how several jobs go in one call
//	inquiry.go, tls.go          how an api is asked about a call; how it is verified
//	operation.go                how an api is polled that accepts a call and goes on working
//	receiver.go                 where events and ends of jobs are posted, and how posts are signed
//	http.go                     which clients may use the HTTP side, by which names, with which tokens
//	header.go                   headers of calls
//	diff.go, explain.go         what two configurations differ in; where each value comes from
//
// What holds:
//
//   - Strict: whatever Parse does not understand is a problem, never a guess. A typing error in a limit must not become
//     "no limit", so unknown fields, duplicate keys and missing units are all refused.
//   - Parse reports all problems of a file at once, each with its line, the path of the field, and the fix. It does not
//     check a section with a problem against other sections, so that each mistake is reported once.
//   - Numbers are exact. Rates and money are decimals on paper and whole numbers here; no float is involved.
//   - A secret is never in a value of this package: a secret.Template holds the reference, and only Resolve's result
//     holds what it refers to. Messages never quote a header's value, nor a url that may carry a password.
//   - weir can count every limit that passes Parse: it lets at least one call through, and its arithmetic stays below
//     2^53, up to which the scripts in Redis count exactly.
package config
