package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLimitsOfOneReplica checks where limits of one replica go, and which limits cannot be of one replica.
func TestLimitsOfOneReplica(t *testing.T) {
	parse := func(limits string) (*Config, error) {
		return Parse(fmt.Appendf(nil, "apis: {pay: {url: 'https://a', idempotency: {header: K}, price: 1, bucket: {rate: 1/s, capacity: 9}, limits: [%s]}}", limits), Options{Name: "w"})
	}
	c, err := parse("{name: all, rate: 100/s}, {name: each, rate: 10/s, per: replica}, {name: few, in_flight: 5, per: replica}, {in_flight: 9, per: api}")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range c.APIs[0].Rules.Shared {
		got = append(got, l.Name)
	}
	for _, l := range c.APIs[0].Rules.Replica {
		got = append(got, "replica:"+l.Name)
	}
	if all := strings.Join(got, " "); all != "all in_flight replica:each replica:few" {
		t.Errorf("limits: %s", all)
	}
	for limit, want := range map[string]string{
		"{quota: 5/day, per: replica}":                                 "a quota counts over all replicas",
		"{budget: 5/day, per: replica}":                                "a budget counts over all replicas",
		"{rate: 10/s, per: replica, cost: header:X}":                   "means nothing to a limit of one replica",
		"{rate: 10/s, per: replica, shadow: true}":                     "means nothing to a limit of one replica",
		"{rate: 10/s, per: host}":                                      "per",
		"{name: a, in_flight: 2}, {name: a, rate: 10/s, per: replica}": "a second limit is called",
	} {
		if _, err := parse(limit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", limit, err)
		}
	}
	account := "accounts: {acme: {limits: [{rate: 10/s, per: replica}]}}\napis: {pay: {url: 'https://a', account: acme, idempotency: {header: K}, bucket: {rate: 1/s, capacity: 9}}}"
	if _, err := Parse([]byte(account), Options{Name: "w"}); err == nil || !strings.Contains(err.Error(), "per") {
		t.Errorf("of an account: %v", err)
	}
	lone, _ := parse("{name: each, rate: 10/s, per: replica}")
	both, _ := parse("{name: each, rate: 10/s}")
	if changes := lone.Diff(both); !slices.Contains(changes, Change{"apis.pay.limits.each.per", "replica", "api"}) {
		t.Errorf("the difference is %v", changes)
	}
}
