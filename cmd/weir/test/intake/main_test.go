package intake

import (
	"testing"

	"weir/cmd/weir/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }
