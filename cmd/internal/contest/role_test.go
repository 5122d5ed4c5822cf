package contest

import (
	"context"
	"errors"
	"os"
	"testing"

	"weir/ingest/await"
)

// TestLateAnswer checks that an answer that comes after its order was given up is not taken for that of the next order.
func TestLateAnswer(t *testing.T) {
	s, err := NewStage(t.TempDir(), "contest-")
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const script = `echo "{}"
read order; while [ ! -e "$0" ]; do sleep 0.01; done; echo '{"took_ns":1}'
read order; echo '{"took_ns":2}'
read order`
	ctx, free := await.Context(t, "the answers"), s.Path("free")
	r, err := s.Play(ctx, "the role", Settings{}, "sh", "-c", script, free)
	if err != nil {
		t.Fatal(err)
	}
	given, up := context.WithCancel(ctx)
	up()
	if a, err := r.Order(given, Order{Do: "work"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("it answered %+v, %v", a, err)
	}
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Order(ctx, Order{Do: "rest"}); err != nil || a.Took != 2 {
		t.Errorf("it answered %+v, %v, want that of the second order", a, err)
	}
}
