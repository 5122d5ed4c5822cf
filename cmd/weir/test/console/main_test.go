package console

import (
	"testing"

	"weir/cmd/weir/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(withChromium{m}) }

// withChromium runs the tests and then ends the browser that they share.
type withChromium struct{ *testing.M }

func (m withChromium) Run() int {
	code := m.M.Run()
	if chromium.end != nil {
		chromium.end()
	}
	return code
}
