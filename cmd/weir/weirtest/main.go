package weirtest

import (
	"context"
	"os"

	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/web"

	"github.com/rogpeppe/go-internal/testscript"
)

// Main runs the tests of a package. If a test starts the package's binary as a weir, the binary runs weir instead. So a
// test can kill a weir, and a script can run it.
func Main(m interface{ Run() int }) {
	for name, secret := range referredTo {
		_ = os.Setenv(name, secret)
	}
	weir := func() { os.Exit(commands.Run(context.Background(), os.Args[1:])) }
	if os.Getenv("WEIR_TEST_AS_WEIR") == "1" || os.Getenv(program.AsWeir) == "1" {
		weir()
	}
	_ = os.Setenv(program.AsWeir, "1")
	testscript.Main(m, map[string]func(){"weir": weir})
}

// referredTo are the variables that configurations in tests refer to. Main sets them for all tests, so that the tests
// can run side by side.
var referredTo = map[string]string{
	"PAY_TOKEN":        "secret-token",
	"SECRET_OF_CANARY": web.CanaryHeader, "SECRET_OF_PRODUCER": web.CanaryProducer, "SECRET_OF_VIEWER": web.CanaryViewer, "SECRET_OF_OPERATOR": web.CanaryOperator,
	"HOOK_SECRET":   web.HookSecret,
	"SECRET_OF_OWN": "own", "SECRET_OF_STOLEN": "stolen",
	"NATS_PRODUCER_PASSWORD": "secret-of-producer", "NATS_WORKER_PASSWORD": "secret-of-worker", "NATS_OPERATOR_PASSWORD": "secret-of-operator",
	"NATS_VIEWER_PASSWORD": "secret-of-viewer", "NATS_MOVER_PASSWORD": "secret-of-mover", "NATS_SYS_PASSWORD": "secret-of-sys",
	"NATS_WEIR_STORE": "80G",
}
