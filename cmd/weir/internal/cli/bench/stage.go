package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
	"weir/cmd/internal/serving"
)

// stage is the environment of a measurement: weir, servers, producers, bare loops and an API, each in a process of its
// own.
type stage struct {
	*contest.Stage
	o    Options
	api  contest.Judge
	fail context.CancelCauseFunc
}

// Values of Options.Server besides the URL of a running server.
const (
	Inside = "inside" // inside weir
	Beside = "beside" // in a process of its own
)

// borrowed reports whether weir uses a server that the measurement did not start.
func (s *stage) borrowed() bool { return s.o.Server != Inside && s.o.Server != Beside }

// weir is a running `weir serve` that accepts jobs.
type weir struct {
	url      string // URL of its server
	pids     []int  // ids of weir's process, which comes first, and of the process that stores for weir if that is another
	producer *contest.Role
}

// serve starts weir with these apis, on the server that the options name, and a producer for it.
func (s *stage) serve(ctx context.Context, name, apis string, env ...string) (w weir, err error) {
	var storing []int
	switch {
	case s.borrowed():
		w.url = s.o.Server
		if err := s.borrow(ctx, w.url); err != nil {
			return w, err
		}
	case s.o.Server == Beside:
		url, server, err := s.Server(ctx, "store", s.o.Durability)
		if err != nil {
			return w, err
		}
		w.url, storing = url, []int{server.PID()}
	}
	file := s.Path(name + ".yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(apis, "URL", s.api.URL)), 0o600); err != nil {
		return w, fmt.Errorf("write the configuration of the measurement: %w", err)
	}
	worker := &serving.Worker{
		Dir: s.Dir, HTTP: "127.0.0.1:0", Fail: s.fail, Attributes: machine.ChildAttributes,
		Env: append([]string{"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + s.Path(name), "WEIR_INSTANCE=bench", "WEIR_DURABILITY=" + s.o.Durability}, env...),
	}
	if w.url == "" {
		worker.NATS = "127.0.0.1:0"
	} else {
		worker.Env = append(worker.Env, "WEIR_NATS_URL="+w.url, "WEIR_REPLICAS=1")
	}
	s.Later(worker.Stop)
	if err := worker.Start(ctx); err != nil {
		return w, fmt.Errorf("%w\nthe last lines of its log:\n%s", err, worker.Tail())
	}
	if w.url == "" {
		w.url = "nats://" + worker.NATS
	}
	w.pids = append([]int{worker.PID()}, storing...)
	w.producer, err = s.Role(ctx, "nats", contest.Settings{Store: w.url, Queue: "weir.jobs"})
	return w, err
}

// connect connects this process to a server.
func (s *stage) connect(url string) (jetstream.JetStream, error) {
	nc, js, err := contest.Connect(url)
	if err != nil {
		return nil, err
	}
	s.Later(func() error { nc.Close(); return nil })
	return js, nil
}

// borrow fails if the server already has streams of weir. Otherwise it makes sure that the streams of the measurement
// are removed at the end.
func (s *stage) borrow(ctx context.Context, url string) error {
	js, err := s.connect(url)
	if err != nil {
		return err
	}
	ours := func(name string) bool {
		return strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "KV_weir_") || name == contest.BusyStream || name == contest.WaitingStream
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if ours(name) {
			return fmt.Errorf("the server has the stream %s: name a server without weir's streams, or leave --server out and the measurement starts its own", name)
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("look for streams of weir: %w", err)
	}
	s.Later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), contest.StartWithin)
		defer cancel()
		names := js.StreamNames(ctx)
		var err error
		for name := range names.Name() {
			if ours(name) {
				err = errors.Join(err, js.DeleteStream(ctx, name))
			}
		}
		if err = errors.Join(err, names.Err()); err != nil {
			return fmt.Errorf("remove what the measurement created: %w", err)
		}
		return nil
	})
	return nil
}
