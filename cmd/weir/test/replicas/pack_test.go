package replicas

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/ledger"
	"weir/ingest/await"
)
