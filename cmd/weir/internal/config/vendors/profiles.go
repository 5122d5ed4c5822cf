package vendors

import "time"

// Profiles returns what the known vendors document, by name. A profile leaves out a fact that its vendor does not
// document, however likely the fact is: above all that a call may be repeated, or that it is not billed.
//
// To add a fact, add a line here and run make fields. Date a changed value by the page that it was read from: the
// value takes effect with the next release of weir, and the date tells operators why.
func Profiles() []Profile {
	return []Profile{anthropic(), bedrock(), github(), openai(), shopify(), stripe(), twilio()}
}

func anthropic() Profile {
	const (
		limits  = "https://platform.claude.com/docs/en/api/rate-limits"
		errors  = "https://platform.claude.com/docs/en/api/errors"
		answers = "https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/types/usage.py"
		deltas  = "https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/types/" +
			"message_delta_usage.py"
		counts = "a token bucket that fills continuously"
	)
	return Profile{"anthropic", time.Minute, []Fact{
		{
			"headers.anthropic-version", `"2023-06-01"`,
			"every request must name a version of the API",
			"https://platform.claude.com/docs/en/api/versioning", "2026-11-26",
		},
		{
			"timeout", "10m",
			"the vendor's own clients wait 10 minutes", errors, "2026-10-04",
		},
		{
			"retry.on", "[429, 503, 529]",
			"529 means that the API is overloaded. In general failed requests are not charged " +
				"(https://support.claude.com/en/articles/8114526-how-will-i-be-billed-for-claude-api-use)",
			errors, "2026-10-04",
		},
		{"retry.hold", "api", "limits are set for the organization", limits, "2026-10-04"},
		{
			"usage.input_tokens", "[json:/usage/input_tokens, json:/message/usage/input_tokens]",
			"in a stream message_start has them, and message_delta may have the sum so far", deltas, "2026-11-26",
		},
		{
			"usage.output_tokens", "[json:/usage/output_tokens, json:/message/usage/output_tokens]",
			"in a stream message_delta has the sum so far", deltas, "2026-11-26",
		},
		{
			"usage.cache_creation_input_tokens",
			"[json:/usage/cache_creation_input_tokens, json:/message/usage/cache_creation_input_tokens]",
			"tokens written to the cache, counted apart", answers, "2026-11-26",
		},
		{
			"usage.cache_read_input_tokens",
			"[json:/usage/cache_read_input_tokens, json:/message/usage/cache_read_input_tokens]",
			"tokens read from the cache, counted apart", answers, "2026-11-26",
		},
		{"limits.requests.counts", "token_bucket", counts, limits, "2026-10-04"},
		{
			"limits.requests.left", "header:anthropic-ratelimit-requests-remaining",
			"the requests that remain; for tokens the headers give only rounded thousands", limits, "2026-10-04",
		},
		{
			"limits.requests.left_until", "header:anthropic-ratelimit-requests-reset",
			"when the limit is full again, as in RFC 3339", limits, "2026-10-04",
		},
		{"limits.input_tokens.counts", "token_bucket", counts, limits, "2026-10-04"},
		{"limits.output_tokens.counts", "token_bucket", counts, limits, "2026-10-04"},
		{
			"limits.input_tokens.cost",
			"[{from: header:Weir-Cost, settle: [json:/usage/input_tokens, json:/message/usage/input_tokens]}, " +
				"{from: 0, settle: [json:/usage/cache_creation_input_tokens, " +
				"json:/message/usage/cache_creation_input_tokens]}]",
			"input_tokens and cache_creation_input_tokens count, and for most models cache_read_input_tokens do not",
			limits, "2026-10-04",
		},
		{
			"limits.output_tokens.cost",
			"{from: json:/max_tokens, default: 0, settle: [json:/usage/output_tokens, " +
				"json:/message/usage/output_tokens]}",
			"the tokens that were generated count, which are at most max_tokens", limits, "2026-10-04",
		},
	}}
}

func bedrock() Profile {
	const (
		usage    = "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html"
		messages = "https://docs.aws.amazon.com/bedrock/latest/userguide/inference-messages-api.html"
	)
	return Profile{"bedrock", 0, []Fact{
		{
			"retry.hold", "api", "ThrottlingException (429) means that the quotas of the account are exceeded",
			"https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html",
			"2026-11-26",
		},
		{
			"usage.input_tokens",
			"[json:/usage/inputTokens, json:/usage/input_tokens, json:/message/usage/input_tokens]",
			"Converse answers have inputTokens, and those of the Messages API the fields of Anthropic " +
				"(" + messages + ")",
			usage, "2026-11-26",
		},
		{
			"usage.output_tokens",
			"[json:/usage/outputTokens, json:/usage/output_tokens, json:/message/usage/output_tokens]",
			"Converse answers have outputTokens", usage, "2026-11-26",
		},
		{
			"usage.cache_read_input_tokens", "json:/usage/cacheReadInputTokens",
			"tokens read from the cache, counted apart", usage, "2026-11-26",
		},
		{
			"usage.cache_write_input_tokens", "json:/usage/cacheWriteInputTokens",
			"tokens written to the cache, counted apart", usage, "2026-11-26",
		},
	}}
}

func github() Profile {
	const limits = "https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api"
	return Profile{"github", time.Hour, []Fact{
		{"retry.hold", "api", "all requests of a user or an installation count together", limits, "2026-11-26"},
		{
			"retry.min", "1m",
			"a request over a secondary limit waits at least a minute, and longer each time", limits, "2026-11-26",
		},
		{
			"limits.requests.left", "header:x-ratelimit-remaining", "the requests that remain of the primary limit", limits,
			"2026-11-26",
		},
		{
			"limits.requests.left_until", "header:x-ratelimit-reset", "when its window ends, in epoch seconds", limits,
			"2026-11-26",
		},
	}}
}

func openai() Profile {
	const (
		limits  = "https://developers.openai.com/api/docs/guides/rate-limits"
		chats   = "https://github.com/openai/openai-python/blob/main/src/openai/types/completion_usage.py"
		answers = "https://github.com/openai/openai-python/blob/main/src/openai/types/responses/response_usage.py"
	)
	return Profile{"openai", time.Minute, []Fact{
		{
			"timeout", "10m", "the vendor's own clients wait 10 minutes",
			"https://developers.openai.com/api/docs/guides/flex-processing", "2026-10-04",
		},
		{
			"retry.hold", "api", "limits are set for the organization and the project, not for a user", limits,
			"2026-10-04",
		},
		{
			"usage.input_tokens",
			"[json:/usage/prompt_tokens, json:/usage/input_tokens, json:/response/usage/input_tokens]",
			"chat completions have prompt_tokens, responses input_tokens; streams have them in their last event", answers,
			"2026-11-26",
		},
		{
			"usage.output_tokens",
			"[json:/usage/completion_tokens, json:/usage/output_tokens, json:/response/usage/output_tokens]",
			"chat completions have completion_tokens, responses output_tokens", answers, "2026-11-26",
		},
		{
			"usage.cached_tokens",
			"[json:/usage/prompt_tokens_details/cached_tokens, json:/usage/input_tokens_details/cached_tokens, " +
				"json:/response/usage/input_tokens_details/cached_tokens]",
			"the input tokens that were read from the cache", answers, "2026-11-26",
		},
		{
			"usage.total_tokens", "[json:/usage/total_tokens, json:/response/usage/total_tokens]",
			"input and output tokens together", chats, "2026-11-26",
		},
		{
			"limits.requests.left", "header:x-ratelimit-remaining-requests", "the requests that remain", limits, "2026-10-04",
		},
		{
			"limits.requests.left_until", "header:x-ratelimit-reset-requests",
			"the time until all is free again, as in 6m0s", limits, "2026-10-04",
		},
		{"limits.tokens.left", "header:x-ratelimit-remaining-tokens", "the tokens that remain", limits, "2026-10-04"},
		{
			"limits.tokens.left_until", "header:x-ratelimit-reset-tokens",
			"the time until all is free again, as in 6m0s", limits, "2026-10-04",
		},
	}}
}

func shopify() Profile {
	const (
		rest    = "https://shopify.dev/docs/api/admin-rest/usage/rate-limits"
		graphql = "https://shopify.dev/docs/apps/build/apis/graphql-admin/rate-limits"
		bucket  = "a leaky bucket that drains continuously"
	)
	return Profile{"shopify", 0, []Fact{
		{"retry.hold", "api", "limits are those of an app and a store together", graphql, "2026-11-26"},
		{
			"usage.points", "json:/extensions/cost/actualQueryCost",
			"the answer of a GraphQL query says what it cost", graphql, "2026-11-26",
		},
		{"limits.requests.counts", "token_bucket", bucket, rest, "2026-11-26"},
		{"limits.points.counts", "token_bucket", bucket, graphql, "2026-11-26"},
		{
			"limits.points.cost", "{from: header:Weir-Cost, settle: json:/extensions/cost/actualQueryCost}",
			"a query needs what it requests, and gets back what it does not use", graphql,
			"2026-11-26",
		},
	}}
}

func stripe() Profile {
	const idempotency = "https://docs.stripe.com/api/idempotent_requests"
	return Profile{"stripe", 0, []Fact{
		{
			"idempotency.header", "Idempotency-Key",
			"all POST requests accept it, for at least 24 hours; GET and DELETE are idempotent without it",
			idempotency, "2026-09-30",
		},
		{
			"idempotency.for", "24h", "a key may be removed when it is 24 hours old, and is then new",
			idempotency, "2026-09-30",
		},
		{
			"retry.on", "[429, 503, 409]",
			"409: another request was carried out, perhaps with the same key, and this one was not. It may be repeated",
			idempotency, "2026-09-30",
		},
		{
			"retry.reject", "[402]",
			"402 means that the request failed though its parameters were valid, as when a card is declined",
			"https://docs.stripe.com/api/errors", "2026-11-26",
		},
	}}
}

func twilio() Profile {
	return Profile{"twilio", 0, []Fact{
		{
			"retry.on", "[429, 503]", "a request answered with 429 was not processed, and is safe to repeat",
			"https://www.twilio.com/docs/api/errors/20429", "2026-03-11",
		},
	}}
}
