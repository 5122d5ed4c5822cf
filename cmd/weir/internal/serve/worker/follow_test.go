package worker

import (
	"testing"

	"weir/cmd/weir/internal/config"
)

// TestMissingSecretNamesFileAndLine: what serve refuses is told as config check tells it.
func TestMissingSecretNamesFileAndLine(t *testing.T) {
	c, err := config.Parse([]byte("apis:\n  a:\n    url: https://a.example.com\n    headers: {X: \"${env:NO_SUCH_SECRET_HERE}\"}\n    bucket: {rate: 1/s, capacity: 1}\n"),
		config.Options{Name: "deploy/my.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "deploy/my.yaml:4: apis.a.headers.X: environment variable NO_SUCH_SECRET_HERE is not set: provide it where weir serve runs"
	if err := refuseUnsupported(c, nil); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
