package fakeapi_test

import (
	"os"
	"path/filepath"
	"testing"

	"weir/cmd/internal/fakeapi"
)

func TestCredentialsAreRevokedForAWhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "revoked")
	api := start(t, fakeapi.Options{Price: 3, Script: fakeapi.RefuseWhile(file, nil)})
	want := []int{200, 401, 200}
	for i, status := range want {
		var err error
		switch i {
		case 1:
			err = os.WriteFile(file, nil, 0o600)
		case 2:
			err = os.Remove(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		if res, _ := must(t, client(t), api.URL(), request{path: "/charge"}); res.StatusCode != status {
			t.Errorf("call %d was answered %d, want %d", i, res.StatusCode, status)
		}
	}
	if totals := api.Totals(); totals.Billed != 2 {
		t.Errorf("%d billed: a call that was refused costs nothing", totals.Billed)
	}
}

func TestKeyInAnotherHeaderIsAnotherKey(t *testing.T) {
	api := start(t, fakeapi.Options{Idempotency: fakeapi.Idempotency{Other: "Request-Key", Repeat: fakeapi.RepeatReplayed}})
	for _, header := range []string{"Idempotency-Key", "Request-Key", "Request-Key", "Idempotency-Key"} {
		must(t, client(t), api.URL(), request{path: "/charge", header: map[string]string{header: "job"}})
	}
	if totals := api.Totals(); totals.Billed != 2 || totals.Replayed != 2 {
		t.Errorf("%+v: each key is billed once", totals)
	}
	if got := api.All()[1].Header("Request-Key"); got != "job" {
		t.Errorf("the ledger has %q in the other header", got)
	}
}
