package jobs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/store"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

// outcomes are the rows of the contract's table. orders are what the api does with the first call, the second and so on;
// it succeeds at the others.
var outcomes = []struct {
	what, apis string // the kind of the two apis: "" or -brief and so on
	orders     []string
	safe, once store.End
}{
	{"200", "", nil, store.End{As: "done", Status: 200, Attempts: 1, Ledger: []string{"done"}}, store.End{As: "done", Status: 200, Attempts: 1, Ledger: []string{"done"}}},
	{"204", "", []string{"status=204"}, store.End{As: "done", Status: 204, Attempts: 1, Ledger: []string{"done"}}, store.End{As: "done", Status: 204, Attempts: 1, Ledger: []string{"done"}}},
	{"303", "", []string{"status=303;location=/v1/elsewhere"}, store.End{As: "done", Status: 303, Attempts: 1, Ledger: []string{"done"}}, store.End{As: "done", Status: 303, Attempts: 1, Ledger: []string{"done"}}},
	{"304", "", []string{"status=304"}, store.End{As: "done", Status: 304, Attempts: 1, Ledger: []string{"done"}}, store.End{As: "done", Status: 304, Attempts: 1, Ledger: []string{"done"}}},
	{"informational", "", []string{"informational=102;informational=103"}, store.End{As: "done", Status: 200, Attempts: 1, Ledger: []string{"done"}}, store.End{As: "done", Status: 200, Attempts: 1, Ledger: []string{"done"}}},
	{"429", "", []string{"status=429"}, pushedOnce, pushedOnce},
	{"503", "", []string{"status=503"}, pushedOnce, pushedOnce},
	{"429 with seconds", "", []string{"status=429;retry-after=1"}, pushedOnce, pushedOnce},
	{"429 with decimals", "", []string{"status=429;retry-after=0.25"}, pushedOnce, pushedOnce},
	{"503 with a date", "", []string{"status=503;retry-after=DATE"}, pushedOnce, pushedOnce},
	{"429 with nonsense", "", []string{"status=429;retry-after=soon"}, pushedOnce, pushedOnce},
	{"409 as listed", "", []string{"status=409;retry-after=0.1"}, pushedOnce, pushedOnce},
	{"501 as listed", "", []string{"status=501"}, pushedOnce, pushedOnce},
	{"429 more often than there are attempts", "", repeat("status=429", 5), store.End{As: "done", Status: 200, Attempts: 1, Ledger: append(repeat("pushback", 5), "done")}, store.End{As: "done", Status: 200, Attempts: 1, Ledger: append(repeat("pushback", 5), "done")}},
	{"400", "", []string{"status=400"}, rejected(400), rejected(400)},
	{"404 with Retry-After", "", []string{"status=404;retry-after=1"}, rejected(404), rejected(404)},
	{"422", "", []string{"status=422"}, rejected(422), rejected(422)},
	{"500", "", []string{"status=500"}, retriedOnce, unknownEnd(500, "unknown")},
	{"502", "", []string{"status=502"}, retriedOnce, unknownEnd(502, "unknown")},
	{"500 for good", "", repeat("status=500", 9), exhaustedEnd(500, "unknown"), unknownEnd(500, "unknown")},
	{"reset at the header", "", []string{"reset=header"}, retriedOnce, unknownEnd(0, "unknown")},
	{"reset at the body", "", []string{"reset=body"}, retriedOnce, unknownEnd(0, "unknown")},
	{"reset in the answer", "", []string{"reset=answer;size=4000"}, retriedOnce, unknownEnd(200, "yes")},
	{"closed", "", []string{"close"}, retriedOnce, unknownEnd(0, "unknown")},
	{"closed for good", "", repeat("close", 9), exhaustedEnd(0, "unknown"), unknownEnd(0, "unknown")},
	{"hang", "-slow", []string{"hang"}, retriedOnce, unknownEnd(0, "unknown")},
	{"slow", "-slow", []string{"delay=1h"}, retriedOnce, unknownEnd(0, "unknown")},
	{"slow answer", "-slow", []string{"drip=1h"}, retriedOnce, unknownEnd(200, "yes")},
	{"hang for good", "-brief", repeat("hang", 9), exhaustedEnd(0, "unknown"), unknownEnd(0, "unknown")},
	{"refused", "-refused", nil, exhaustedEnd(0, "no"), exhaustedEnd(0, "no")},
	{"no TLS", "-tls", nil, exhaustedEnd(0, "no"), exhaustedEnd(0, "no")},
}

var (
	pushedOnce  = store.End{As: "done", Status: 200, Attempts: 1, Ledger: []string{"pushback", "done"}}
	retriedOnce = store.End{As: "done", Status: 200, Attempts: 2, Ledger: []string{"retry", "done"}}
)

func rejected(status int) store.End {
	return store.End{As: "rejected", Status: status, Attempts: 1, Billed: "no", Ledger: []string{"rejected"}}
}

func unknownEnd(status int, billed string) store.End {
	return store.End{As: "unknown", Status: status, Attempts: 1, Billed: deadletter.Billed(billed), Ledger: []string{"unknown"}}
}

func exhaustedEnd(status int, billed string) store.End {
	return store.End{As: "exhausted", Status: status, Attempts: 3, Billed: deadletter.Billed(billed), Ledger: []string{"retry", "retry", "exhausted"}}
}

func repeat(s string, n int) []string { return strings.Fields(strings.Repeat(s+" ", n)) }

// TestOutcomes goes through the contract's table, on an api that is idempotent and on one that is not.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	orders := map[string][]string{}
	for i, c := range outcomes {
		for _, api := range []string{"safe", "once"} {
			orders[fmt.Sprintf("%s-%d", api, i)] = c.orders
		}
	}
	api, address := weirtest.StartOrdered(t, orders), closedPort(t)
	r := weirtest.RigOn(t, api, fmt.Sprintf(weirtest.OutcomeYAML, api.URL(), address, strings.TrimPrefix(api.URL(), "http://")))
	for i := range outcomes {
		for _, kind := range []string{"safe", "once"} {
			key := fmt.Sprintf("%s-%d", kind, i)
			r.Producer().Send(kind+outcomes[i].apis, key, nats.Header{"Nats-Msg-Id": {"id-" + key}, "Weir-Path": {"/" + key}}, "pay "+key)
		}
	}
	for i, c := range outcomes {
		for kind, want := range map[string]store.End{"safe": c.safe, "once": c.once} {
			t.Run(kind+" "+c.what, func(t *testing.T) {
				key := fmt.Sprintf("%s-%d", kind, i)
				r.Store().CheckEnd(t, kind+c.apis, key, "id-"+key, "pay "+key, want)
				calls := len(want.Ledger)
				if c.apis == "-refused" || c.apis == "-tls" {
					calls = 0
				}
				r.Referee().CheckArrivals(t, key, calls, kind == "safe", c.orders)
			})
		}
	}
	if n := len(r.API.Arrivals("elsewhere")); n > 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// closedPort returns an address where nothing listens. A socket that is bound to it keeps other programs from it until
// the test ends; the test itself may listen there, since both sockets share the address.
func closedPort(t *testing.T) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err := syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", name.(*syscall.SockaddrInet4).Port)
}
