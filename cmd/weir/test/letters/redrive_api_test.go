package letters

import (
	"bytes"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
)

// TestRedriveOnceTheAPIIsConfigured: the letter of a job for an unknown api names that api. It stays while the api is
// not configured, and is redriven once it is.
func TestRedriveOnceTheAPIIsConfigured(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 20}}
`)
	for _, subject := range []string{"sms.tenant.42", "No%2Fname.k"} {
		if a := r.Producer().Submit("weir.jobs."+subject, []byte("hello"), map[string]string{"Nats-Msg-Id": "order-7"}); a.Error == nil || a.Error.ErrCode != 20404 {
			t.Fatalf("%s: %+v", subject, a)
		}
	}
	letters := r.Store().Letters("_", "*")
	if len(letters) != 2 || letters[0].Header.Get(deadletter.HeaderAskedAPI) != "sms" || letters[0].Header.Get("Weir-Api") != "" {
		t.Fatalf("the letters are %+v", letters)
	}
	did, code := r.CLI().Redrive()
	if did.Skipped[deadletter.SkipNoAPI] != 2 || did.Redriven != 0 {
		t.Errorf("before the api is configured: exit code %d, %+v", code, did)
	}
	r.Follow(`
apis:
  pay: {url: %[1]s, bucket: {rate: 100/s, capacity: 20}}
  sms: {url: %[1]s, bucket: {rate: 100/s, capacity: 20}}
`)
	if did, code = r.CLI().Redrive(); did.Redriven != 1 || did.Skipped[deadletter.SkipNoAPI] != 1 {
		t.Errorf("once it is: exit code %d, %+v", code, did)
	}
	calls := r.AwaitCalls(1)
	r.Store().Ended("sms", "tenant%2E42", 1)
	if results := r.Store().Results("sms", "tenant%2E42"); len(calls) != 1 || !bytes.Equal(calls[0].Body, []byte("hello")) || len(results) != 1 ||
		results[0].Header.Get("Weir-Job-Id") != "order-7" {
		t.Errorf("%d calls, results %+v", len(calls), results)
	}
	if left := r.Store().Letters("_", "*"); len(left) != 1 || left[0].Header.Get(deadletter.HeaderAskedAPI) != "No%252Fname" {
		t.Errorf("the letters left are %+v", left)
	}
}
