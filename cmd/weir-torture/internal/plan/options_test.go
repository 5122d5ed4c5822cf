package plan

import (
	"strings"
	"testing"
)

// TestFeatureOptions checks that features that do not fit together are refused, and that the command that repeats a run
// names its features.
func TestFeatureOptions(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		says   string // "" if the options are valid
	}{
		{func(o *Options) { o.Priorities, o.Callbacks, o.Operations, o.Reuse = true, true, true, true }, ""},
		{func(o *Options) { o.Priorities, o.Callbacks, o.Pack = true, true, 5 }, ""},
		{func(o *Options) { o.Operations, o.Pack = true, 5 }, "without --pack"},
		{func(o *Options) { o.Reuse, o.Pack = true, 5 }, "without --pack"},
		{func(o *Options) { o.Priorities, o.Callbacks, o.Settled = true, true, true }, ""},
		{func(o *Options) { o.Settled, o.Pack = true, 5 }, "without --pack"},
		{func(o *Options) { o.Settled, o.Reuse = true, true }, "without --pack"},
		{func(o *Options) { o.Settled, o.Takeovers = true, 1 }, "without --pack"},
		{func(o *Options) { o.Settled, o.Replicas, o.Server = true, 2, External }, "for one weir"},
		{func(o *Options) { o.Callbacks, o.Restores = true, 1 }, "without --callbacks"},
		{func(o *Options) { o.Callbacks, o.Settings = true, []string{removal} }, "--callbacks or --reuse"},
		{func(o *Options) { o.Reuse, o.Settings = true, []string{removal, "rate"} }, ""},
	} {
		o := Options{Server: Embedded, Auth: authOpen, Replicas: 1, Rate: 20, Keys: 6, Jobs: 40, Durability: "always"}
		c.change(&o)
		switch err := o.Validate(); {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", o.Command(), err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, and not %q", o.Command(), err, c.says)
		}
	}
	o := Options{Priorities: true, Callbacks: true, Operations: true, Reuse: true, Settled: true}
	for _, flag := range []string{"--priorities", "--callbacks", "--operations", "--reuse", "--settled"} {
		if !strings.Contains(o.Command(), flag) {
			t.Errorf("the command %q has no %s", o.Command(), flag)
		}
	}
}
