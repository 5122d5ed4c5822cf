// Package config turns weir.yaml and the environment into validated values. No other package knows YAML.
//
//	weir.yaml ── Parse ──▶ *Config | *Errors      (pure: no environment, no clock, no file but zones)
//	WEIR_…    ── ReadSettings ──▶ *Settings | *Errors
//	${env:…}, ${file:…} ── Template.Resolve ──▶ a header's value, at the time of each call
//
// Files:
//
//	field.go, kind.go           the registry of fields, for this package and others; how a mapping is read
//	values.go                   types of single values
//	config.go, api.go           a whole file, with the checks across it; one api
//	rules.go, rate.go, key.go   an api's bucket and the exceptions for keys; rates; where a job's key stands
//	limit.go, quota.go          limits that keys share; periods
//	account.go                  limits that several apis share
//	shares.go                   parts of these limits for sites, and what a new file may do to them
//	cost.go, answer.go          what a job takes from limits and budgets; numbers of answers
//	admit.go                    limits on what comes in
//	retry.go                    what an answer means, and when all calls stop
//	reuse.go                    when a job gets the answer of an equal one
//	pack.go                     how several jobs go in one call
//	inquiry.go, tls.go          how an api is asked about a call; how it is verified
//	operation.go                how an api is polled that accepts a call and goes on working
//	notifications.go            where events are posted
//	callback.go, receiver.go    where ends of jobs are posted; addresses that take posts, and how these are signed
//	http.go                     which clients may use the HTTP side, by which names, with which tokens
//	header.go, template.go      headers of calls; texts with references to secrets
//	secret.go                   which references may be used, what must not be printed
//	variables.go, settings.go   the registry of variables; the environment
//	signin.go, natscontext.go, address.go   how weir signs in, contexts of the nats command, addresses
//	vendor.go, profiles.go      how a vendor's documents fill in an api; what each vendor documents
//	diff.go, explain.go         what two configurations differ in; where each value comes from
//	document.go                 the walk through YAML: values with their lines, mappings and lists
//	problem.go                  what is wrong and how to mend it; the name that was probably meant
//	number.go, duration.go      numbers, money, sizes and durations as people write them
//
// # To add a field
//
// Write one line in the section method of its mapping, and run make fields:
//
//	{name: "linger", is: one(&a.Linger, duration(0, time.Hour)), or: "5s", means: "how long weir keeps a connection open"},
//
// Everything comes from that line: the parser with its problems and their fixes, the difference of two files, the JSON
// Schema, and the table in the topic fields (make fields writes both). The value is in a.Linger. In the same way:
//
//   - one(at, TYPE) is a single value, many(at, most, TYPE) a list of them. values.go has the types: duration, size, whole,
//     percent, word, yes, rate, money, free. The method but gives a type other limits. secret is a text with references
//     to secrets.
//   - mapping(section) is a mapping that always has a value, optional(at, section) one that may be absent: nil.
//     items(at, most, section) is a list of mappings; named(at, most, below, section, name) has names that the user
//     chooses; shorthand(section) is a mapping that may be written as its first field alone. They nest.
//   - The line may have more members. needs makes the field required; its text is the fix if the field is missing. or
//     is the default, as a file writes it. absent sets a default that depends on fields above, and otherwise describes
//     such a default.
//   - A section's check reports what its fields cause together: f.place(name).fail or warn, f.ignored for fields without
//     effect. It runs if the file has the mapping, even if fields of it were refused: see f.clean and f.fine.
//
// A variable of the environment is a line of the same form in Settings.groups (variables.go). envconfig decodes it into
// its place in Settings, Redacted lists it, and make fields writes the table in the topic environment. A type whose
// values are secrets, Secret or Template, never shows one.
//
// Fields are read in the order of the section, so a field stands below those that its default or its check needs.
//
// What holds:
//
//   - Strict: whatever Parse does not understand is a problem, never a guess. A typing error in a limit must not become
//     "no limit", so unknown fields, duplicate keys and missing units are all refused.
//   - Parse reports all problems of a file at once, each with its line, the path of the field, and the fix. It does not
//     check a section with a problem against other sections, so that each mistake is reported once.
//   - Numbers are exact. Rates and money are decimals on paper and whole numbers here; no float is involved.
//   - A secret is never in a value of this package: a Template holds the reference, and only Resolve's result holds
//     what it refers to. Messages never quote a header's value, nor a url that may carry a password.
//   - weir can count every limit that passes Parse: it lets at least one call through, and its arithmetic stays below
//     2^53, up to which the scripts in Redis count exactly.
//
// Parse walks YAML nodes and does not decode into structs with tags: the decoder stops at the first wrong type of a
// field, knows no paths, and accepts 010 as 8 and 1_0 as 10. The registry binds a field to a pointer, and not to a tag,
// so that the compiler checks types, and a range or a default can be any expression.
package config
