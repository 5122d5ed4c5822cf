package fakeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Vendor is a vendor whose published documents say how the api answers: the headers of its limits, the bodies of its
// refusals, its reports of a call's use, and its streams. The zero value is no vendor.
type Vendor string

// The vendors.
const (
	Anthropic Vendor = "anthropic"
	Bedrock   Vendor = "bedrock"
	GitHub    Vendor = "github"
	OpenAI    Vendor = "openai"
	Shopify   Vendor = "shopify"
	Stripe    Vendor = "stripe"
	Twilio    Vendor = "twilio"
)

// Vendors returns all vendors.
func Vendors() []Vendor { return []Vendor{Anthropic, Bedrock, GitHub, OpenAI, Shopify, Stripe, Twilio} }

// What the fake language models charge per token, in millionths of the currency.
const (
	InputPrice      = 3
	OutputPrice     = 15
	CacheWritePrice = 4
)

func (v Vendor) validate() error {
	for _, known := range append(Vendors(), "") {
		if v == known {
			return nil
		}
	}
	return fmt.Errorf("unknown vendor %q", v)
}

// script returns the script of a working api.
func (v Vendor) script() Script {
	if v == "" {
		return succeed
	}
	return func(_ context.Context, r *Request) Behaviour { return v.Answer(r) }
}

// prompt has the parts of a request's body that the fakes read.
type prompt struct {
	MaxTokens           int64 `json:"max_tokens"`
	MaxCompletionTokens int64 `json:"max_completion_tokens"`
	MaxOutputTokens     int64 `json:"max_output_tokens"`
	Inference           struct {
		MaxTokens int64 `json:"maxTokens"`
	} `json:"inferenceConfig"`
	Stream  bool `json:"stream"`
	Options struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Cache    json.RawMessage `json:"cache_control"`
	Metadata struct {
		Input  int64 `json:"input_tokens,string"`
		Output int64 `json:"output_tokens,string"`
	} `json:"metadata"`
}

// used returns the tokens of a call: one input token for every four bytes of the request, and half of max_tokens as
// output. If the metadata has input_tokens or output_tokens, as numbers in strings, these count instead. A call never
// writes more than max_tokens. A request with cache_control writes 12 tokens to a cache and reads 7 from it.
func (p *prompt) used(body []byte) Tokens {
	most := max(p.MaxTokens, p.MaxCompletionTokens, p.MaxOutputTokens, p.Inference.MaxTokens)
	t := Tokens{
		Input:  cmp.Or(p.Metadata.Input, int64(1+len(body)/4)),
		Output: cmp.Or(p.Metadata.Output, max(1, most/2)), Max: most,
	}
	if most > 0 {
		t.Output = min(t.Output, most)
	}
	if p.Cache != nil {
		t.Written, t.Read = 12, 7
	}
	return t
}

// charge returns the price of the tokens. Tokens read from a cache are free.
func (t Tokens) charge() int64 {
	return t.Input*InputPrice + t.Output*OutputPrice + t.Written*CacheWritePrice
}

// Answer returns the vendor's answer to a request that is carried out.
func (v Vendor) Answer(r *Request) Behaviour {
	body := r.Body()
	var p prompt
	_ = json.Unmarshal(body, &p) // a body that is no JSON counts like an empty prompt of its length
	t := p.used(body)
	b := v.carriedOut(r, &p, t)
	if b.bills() {
		b.Used = t
	}
	if strings.HasPrefix(b.Header[0].Value, "text/event-stream") && r.Header.Get("Accept") == "application/x-ndjson" {
		b.Text, b.Header[0].Value = jsonLines(b.Text), "application/x-ndjson"
	}
	return b
}

// carriedOut returns the vendor's answer to a request that uses t.
func (v Vendor) carriedOut(r *Request, p *prompt, t Tokens) Behaviour {
	switch v {
	case Anthropic:
		if r.Header.Get("Anthropic-Version") == "" {
			return refusal(http.StatusBadRequest, `{"type":"error","error":{"type":"invalid_request_error",`+
				`"message":"anthropic-version: header is required"}}`)
		}
		return v.metered(t, p.Stream, anthropicMessage(t, r.Number), anthropicEvents(t, r.Number))
	case Bedrock:
		return v.metered(t, false, converseAnswer(t), "")
	case OpenAI:
		if strings.HasSuffix(r.Path, "/responses") {
			return v.metered(t, p.Stream, openAIResponse(t, r.Number), responseEvents(t, r.Number))
		}
		return v.metered(t, p.Stream, chatCompletion(t, r.Number), chatEvents(t, r.Number, p.Options.IncludeUsage))
	case GitHub:
		return created(http.StatusCreated, fmt.Sprintf(`{"id":%d,"state":"open"}`, r.Number))
	case Shopify:
		if strings.HasSuffix(r.Path, "/graphql.json") {
			return created(http.StatusOK, `{"data":{},"extensions":{"cost":{"requestedQueryCost":101,`+
				`"actualQueryCost":46,`+
				`"throttleStatus":{"maximumAvailable":2000.0,"currentlyAvailable":1954,"restoreRate":100.0}}}}`)
		}
		return created(http.StatusCreated, fmt.Sprintf(`{"order":{"id":%d}}`, r.Number))
	case Stripe:
		return created(http.StatusOK, fmt.Sprintf(`{"id":"ch_%d","object":"charge","amount":2000,`+
			`"currency":"usd","status":"succeeded"}`, r.Number))
	case Twilio:
		return created(http.StatusCreated, fmt.Sprintf(`{"sid":"SM%032d","status":"queued","num_segments":"1",`+
			`"price":null}`, r.Number))
	}
	return created(http.StatusOK, "{}")
}

// metered returns the answer of a language model, whole or as server-sent events.
func (v Vendor) metered(t Tokens, streams bool, whole, events string) Behaviour {
	b := created(http.StatusOK, whole)
	if streams {
		b.Text, b.Header[0].Value = events, "text/event-stream; charset=utf-8"
	}
	b.Charge = t.charge()
	return b
}

// created returns a JSON answer.
func created(status int, text string) Behaviour {
	return Behaviour{Status: status, Answer: AnswerText, Text: text, Header: []Field{{"Content-Type", "application/json"}}}
}

// refusal returns a JSON answer that is not billed.
func refusal(status int, text string) Behaviour {
	b := created(status, text)
	b.Bill = BillNever
	return b
}

// Overloaded returns the vendor's answer while it has no capacity for any client.
func (v Vendor) Overloaded() Behaviour {
	switch v {
	case Anthropic:
		return refusal(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},`+
			`"request_id":"req_1"}`)
	case Bedrock:
		b := refusal(http.StatusServiceUnavailable, `{"message":"Bedrock is unable to process your request."}`)
		b.Header = append(b.Header, Field{"X-Amzn-Errortype", "ServiceUnavailableException"})
		return b
	case OpenAI:
		return refusal(http.StatusServiceUnavailable, `{"error":{"message":"The engine is currently overloaded, `+
			`please try again later",`+
			`"type":"service_unavailable_error","param":null,"code":null}}`)
	case GitHub, Shopify, Stripe, Twilio:
	}
	return refusal(http.StatusServiceUnavailable, `{"message":"Service Unavailable"}`)
}

// Limited returns the answer to a call over a limit, without Retry-After and the limit's headers. form is the form of
// Retry-After.
func (v Vendor) Limited(form RetryAfterForm) Behaviour {
	switch v {
	case Anthropic:
		return refusal(http.StatusTooManyRequests, `{"type":"error","error":{"type":"rate_limit_error",`+
			`"message":"This request would exceed the rate limit `+
			`of your organization."},"request_id":"req_1"}`)
	case Bedrock:
		b := refusal(http.StatusTooManyRequests, `{"message":"Too many requests, please wait before trying again."}`)
		b.Header = append(b.Header, Field{"X-Amzn-Errortype", "ThrottlingException"})
		return b
	case GitHub:
		if form == Absent { // the primary limit, which only x-ratelimit-reset dates
			return refusal(http.StatusForbidden, `{"message":"API rate limit exceeded for user ID 1.",`+
				`"documentation_url":"https://docs.github.com/rest"}`)
		}
		return refusal(http.StatusTooManyRequests, `{"message":"You have exceeded a secondary rate limit.",`+
			`"documentation_url":"https://docs.github.com/rest"}`)
	case OpenAI:
		return refusal(http.StatusTooManyRequests, `{"error":{"message":"Rate limit reached for requests",`+
			`"type":"requests","param":null,`+
			`"code":"rate_limit_exceeded"}}`)
	case Shopify:
		return refusal(http.StatusTooManyRequests, `{"errors":"Exceeded 2 calls per second for api client. `+
			`Reduce request rates to resume uninterrupted service."}`)
	case Stripe:
		b := refusal(http.StatusTooManyRequests, `{"error":{"code":"rate_limit","message":"Too many requests `+
			`hit the API too quickly.","type":"invalid_request_error"}}`)
		b.Header = append(b.Header, Field{"Stripe-Rate-Limited-Reason", "global-rate"})
		return b
	case Twilio:
		return refusal(http.StatusTooManyRequests, `{"code":20429,"message":"Too Many Requests",`+
			`"more_info":"https://www.twilio.com/docs/errors/20429","status":429}`)
	}
	return Behaviour{Status: http.StatusTooManyRequests}
}

// limits returns the headers that report what is left of a limit.
func (v Vendor) limits(limit VendorLimit, a allowance, now time.Time) []Field {
	if limit.Count == 0 {
		return nil
	}
	count, left := strconv.Itoa(limit.Count), strconv.FormatInt(a.left, 10)
	used := strconv.FormatInt(int64(limit.Count)-a.left, 10)
	at := now.Add(a.resets + time.Second - 1)
	switch v {
	case Anthropic:
		return []Field{
			{"Anthropic-Ratelimit-Requests-Limit", count},
			{"Anthropic-Ratelimit-Requests-Remaining", left},
			{"Anthropic-Ratelimit-Requests-Reset", at.UTC().Format(time.RFC3339)},
		}
	case GitHub:
		return []Field{
			{"X-Ratelimit-Limit", count},
			{"X-Ratelimit-Remaining", left},
			{"X-Ratelimit-Used", used},
			{"X-Ratelimit-Reset", strconv.FormatInt(at.Unix(), 10)},
			{"X-Ratelimit-Resource", "core"},
		}
	case OpenAI:
		return []Field{
			{"X-Ratelimit-Limit-Requests", count},
			{"X-Ratelimit-Remaining-Requests", left},
			{"X-Ratelimit-Reset-Requests", a.resets.Round(time.Millisecond).String()},
		}
	case Shopify:
		return []Field{{"X-Shopify-Shop-Api-Call-Limit", used + "/" + count}}
	case Bedrock, Stripe, Twilio: // they document none
	}
	return nil
}

// over returns the answer to a call that exceeds the use limit l. limited is the vendor's answer to a call over any
// limit.
func (v Vendor) over(limited Behaviour, l *UseLimit, wait time.Duration) Behaviour {
	if v == OpenAI {
		limited.Text = fmt.Sprintf(`{"error":{"message":"Rate limit reached for gpt in organization org-1 on %s: `+
			`Limit %d. Please try again in %s.","type":%q,"param":null,"code":"rate_limit_exceeded"}}`,
			l.Name, l.Count, wait.Round(time.Millisecond), l.Name)
	}
	return limited
}

// uses returns the headers that report what is left of the use limits. Anthropic rounds tokens to thousands.
func (v Vendor) uses(limits []UseLimit, left []allowance, now time.Time) (fields []Field) {
	for i, a := range left {
		l := &limits[i]
		switch {
		case v == Anthropic:
			name, unit := "Anthropic-Ratelimit-"+strings.ReplaceAll(l.Name, "_", "-"), int64(1)
			if strings.HasSuffix(l.Name, "tokens") {
				unit = 1000
			}
			fields = append(fields,
				Field{name + "-Limit", strconv.FormatInt(l.Count, 10)},
				Field{name + "-Remaining", strconv.FormatInt((a.left+unit/2)/unit*unit, 10)},
				Field{name + "-Reset", now.Add(a.resets + time.Second - 1).UTC().Format(time.RFC3339)})
		case v == OpenAI && (l.Name == "requests" || l.Name == "tokens"):
			fields = append(fields,
				Field{"X-Ratelimit-Limit-" + l.Name, strconv.FormatInt(l.Count, 10)},
				Field{"X-Ratelimit-Remaining-" + l.Name, strconv.FormatInt(a.left, 10)},
				Field{"X-Ratelimit-Reset-" + l.Name, a.resets.Round(time.Millisecond).String()})
		}
	}
	return fields
}

// anthropicUsage returns the member usage of a message.
func anthropicUsage(t Tokens, output int64) string {
	return fmt.Sprintf(`"usage":{"input_tokens":%d,"cache_creation_input_tokens":%d,`+
		`"cache_read_input_tokens":%d,"output_tokens":%d}`,
		t.Input, t.Written, t.Read, output)
}

func anthropicMessage(t Tokens, number int64) string {
	return fmt.Sprintf(`{"id":"msg_%d","type":"message","role":"assistant","model":"claude",`+
		`"content":[{"type":"text","text":"Hello!"}],`+
		`"stop_reason":"end_turn","stop_sequence":null,%s}`, number, anthropicUsage(t, t.Output))
}

// anthropicEvents returns a message as a stream. message_start has the input tokens, and message_delta the sum of the
// output tokens.
func anthropicEvents(t Tokens, number int64) string {
	return events(
		fmt.Sprintf(`message_start|{"type":"message_start","message":{"id":"msg_%d","type":"message",`+
			`"role":"assistant","content":[],"model":"claude",`+
			`"stop_reason":null,"stop_sequence":null,%s}}`, number, anthropicUsage(t, 1)),
		`content_block_start|{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`ping|{"type": "ping"}`,
		`content_block_delta|{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello!"}}`,
		`content_block_stop|{"type":"content_block_stop","index":0}`,
		fmt.Sprintf(`message_delta|{"type":"message_delta","delta":{"stop_reason":"end_turn",`+
			`"stop_sequence":null},"usage":{"output_tokens":%d}}`, t.Output),
		`message_stop|{"type":"message_stop"}`,
	)
}

func converseAnswer(t Tokens) string {
	return fmt.Sprintf(`{"metrics":{"latencyMs":1},"output":{"message":{"content":[{"text":"Hello!"}],`+
		`"role":"assistant"}},"stopReason":"end_turn",`+
		`"usage":{"inputTokens":%d,"outputTokens":%d,"totalTokens":%d,"cacheReadInputTokens":%d,`+
		`"cacheWriteInputTokens":%d}}`,
		t.Input, t.Output, t.Input+t.Output, t.Read, t.Written)
}

// chatUsage returns the member usage of a chat completion.
func chatUsage(t Tokens) string {
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,`+
		`"prompt_tokens_details":{"cached_tokens":%d}}`,
		t.Input, t.Output, t.Input+t.Output, t.Read)
}

func chatCompletion(t Tokens, number int64) string {
	return fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion","model":"gpt","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":"Hello!"},`+
		`"finish_reason":"stop"}],%s}`, number, chatUsage(t))
}

// chatEvents returns a chat completion as a stream. If the request asks for it, the last event has the usage.
func chatEvents(t Tokens, number int64, usage bool) string {
	null, last := "", []string{}
	if usage {
		null = `,"usage":null`
		last = append(last, fmt.Sprintf(`|{"id":"chatcmpl-%d","object":"chat.completion.chunk",`+
			`"choices":[],%s}`, number, chatUsage(t)))
	}
	return events(append(append([]string{
		fmt.Sprintf(`|{"id":"chatcmpl-%d","object":"chat.completion.chunk","choices":[{"index":0,`+
			`"delta":{"content":"Hello!"},"finish_reason":null}]%s}`, number, null),
		fmt.Sprintf(`|{"id":"chatcmpl-%d","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},`+
			`"finish_reason":"stop"}]%s}`, number, null),
	}, last...), `|[DONE]`)...)
}

func openAIResponse(t Tokens, number int64) string {
	return fmt.Sprintf(`{"id":"resp_%d","object":"response","status":"completed","model":"gpt","output":[],`+
		`"usage":{"input_tokens":%d,`+
		`"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,`+
		`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}}`,
		number, t.Input, t.Read, t.Output, t.Input+t.Output)
}

// responseEvents returns a response as a stream. The event response.completed has the whole response.
func responseEvents(t Tokens, number int64) string {
	return events(
		fmt.Sprintf(`response.created|{"type":"response.created","response":{"id":"resp_%d","object":"response",`+
			`"status":"in_progress","usage":null}}`, number),
		`response.output_text.delta|{"type":"response.output_text.delta","output_index":0,"content_index":0,`+
			`"delta":"Hello!"}`,
		`response.completed|{"type":"response.completed","response":`+openAIResponse(t, number)+`}`,
	)
}

// events renders server-sent events. Each argument is NAME|DATA.
func events(all ...string) string {
	var text strings.Builder
	for _, each := range all {
		name, data, _ := strings.Cut(each, "|")
		if name != "" {
			text.WriteString("event: " + name + "\n")
		}
		text.WriteString("data: " + data + "\n\n")
	}
	return text.String()
}

// jsonLines returns the data of server-sent events, one per line. It leaves out the closing [DONE], which is no JSON.
func jsonLines(events string) string {
	var text strings.Builder
	for line := range strings.Lines(events) {
		if data, found := strings.CutPrefix(line, "data: "); found && data != "[DONE]\n" {
			text.WriteString(data)
		}
	}
	return text.String()
}
