package contest

import "testing"

// TestReadCommands checks that the runs of scripts and all commands are counted, and that other lines are ignored.
func TestReadCommands(t *testing.T) {
	const info = "# Commandstats\r\ncmdstat_info:calls=2,usec=70,usec_per_call=35.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_evalsha:calls=40,usec=800\r\ncmdstat_eval:calls=1,usec=90\r\ncmdstat_hset:calls=100,usec=90\r\ncmdstat_odd:usec=1\r\n"
	if got, want := readCommands(info), (Commands{Scripts: 41, All: 143}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}
