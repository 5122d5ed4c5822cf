package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/internal/child"
	"weir/cmd/internal/serving"
)

// stage is what a measurement runs on: weir in a process of its own, and servers and an API beside it.
type stage struct {
	o    Options
	dir  string
	sink *sink
	weir *serving.Worker
	nc   *nats.Conn // to the server that weir uses
	js   jetstream.JetStream
	env  []string // of weir, besides what serve sets
	pids []int    // of the processes that store for weir, and weir's own; the first is weir's

	fail     context.CancelCauseFunc
	cleanups []func() error
}

// startServer bounds the start of a nats-server.
const startServer = 30 * time.Second

// newStage makes the directory and the API. close must be called, also after an error.
func newStage(o Options, fail context.CancelCauseFunc) (*stage, error) {
	s := &stage{o: o, fail: fail}
	var err error
	if s.dir, err = os.MkdirTemp(o.Dir, "weir-bench-"); err != nil {
		return s, fmt.Errorf("a directory for the measurement: %w", err)
	}
	s.later(func() error { return os.RemoveAll(s.dir) })
	if s.sink, err = startSink(); err != nil {
		return s, err
	}
	s.later(s.sink.close)
	return s, nil
}

func (s *stage) later(do func() error) { s.cleanups = append(s.cleanups, do) }

// close takes down what was put up, the last first.
func (s *stage) close() error {
	var err error
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		err = errors.Join(err, s.cleanups[i]())
	}
	return err
}

// Where weir's server runs, besides the URL of one that runs already.
const (
	Inside = "inside" // weir
	Beside = "beside" // in a process of its own
)

// serve starts weir with these apis beside the server of the options, and connects to that.
func (s *stage) serve(ctx context.Context, apis string) error {
	var elsewhere string
	var storing []int
	switch s.o.Server {
	case Inside:
	case Beside:
		url, pid, err := s.server(ctx, "store", s.o.Durability)
		if err != nil {
			return err
		}
		elsewhere, storing = url, []int{pid}
	default:
		if err := s.borrow(ctx, s.o.Server); err != nil {
			return err
		}
		elsewhere = s.o.Server
	}
	file := filepath.Join(s.dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(apis, "URL", s.sink.url)), 0o600); err != nil {
		return fmt.Errorf("write the configuration of the measurement: %w", err)
	}
	w := &serving.Worker{
		Dir: s.dir, HTTP: "127.0.0.1:0", Fail: s.fail, Attributes: s.o.Attributes,
		Env: []string{"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + filepath.Join(s.dir, "data"), "WEIR_INSTANCE=bench", "WEIR_DURABILITY=" + s.o.Durability},
	}
	w.Env = append(w.Env, s.env...)
	if elsewhere == "" {
		w.NATS = "127.0.0.1:0"
		w.Env = append(w.Env, "WEIR_NATS_AUTH=open") // the reference makes a stream beside weir's
	} else {
		w.Env = append(w.Env, "WEIR_NATS_URL="+elsewhere, "WEIR_REPLICAS=1")
	}
	s.weir = w
	s.later(w.Stop)
	if err := w.Start(ctx); err != nil {
		return fmt.Errorf("%w\nthe last lines of its log:\n%s", err, w.Tail())
	}
	s.pids = append([]int{w.PID()}, storing...)
	if elsewhere != "" {
		return s.connect(elsewhere)
	}
	return s.connect("nats://" + w.NATS)
}

// borrow refuses a server on which weir has streams, and takes away at the end what the measurement made there.
func (s *stage) borrow(ctx context.Context, url string) error {
	nc, js, err := connect(url)
	if err != nil {
		return err
	}
	s.later(func() error { nc.Close(); return nil })
	ours := func(name string) bool {
		return strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "KV_weir_") || name == bareStream
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
	s.later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startServer)
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

func (s *stage) connect(url string) (err error) {
	s.nc, s.js, err = connect(url)
	if err != nil {
		return err
	}
	s.later(func() error { s.nc.Close(); return nil })
	return nil
}

// under bounds what a producer has under way.
const under = 4000

func connect(url string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url, nats.Name("weir bench"))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the server of the measurement: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(under), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("connect to JetStream: %w", err)
	}
	return nc, js, nil
}

// server starts a nats-server in a process of its own, and returns its URL and its process.
func (s *stage) server(ctx context.Context, name, durability string) (url string, pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, fmt.Errorf("find the weir binary: %w", err)
	}
	at := make(chan string, 1)
	process, err := child.Start(child.Options{
		Name: "nats-server", Path: self, Dir: s.dir, Attributes: s.o.Attributes,
		Args: []string{"nats-server", "--listen", "127.0.0.1:0", "--dir", filepath.Join(s.dir, name), "--durability", durability},
		Line: func(line string) {
			if url, ok := strings.CutPrefix(line, "listening "); ok {
				select {
				case at <- url:
				default:
				}
			}
		},
	})
	if err != nil {
		return "", 0, err
	}
	s.later(func() error { return process.Stop(startServer) })
	ctx, cancel := context.WithTimeoutCause(ctx, startServer, errors.New("the nats-server of the reference did not come up"))
	defer cancel()
	select {
	case url := <-at:
		return url, process.PID(), nil
	case <-process.Exited():
		return "", 0, fmt.Errorf("the nats-server of the reference ended: %s", process.Tail())
	case <-ctx.Done():
		return "", 0, context.Cause(ctx)
	}
}

// Attributes are those of a child process: it should die with this one.
type Attributes func() *syscall.SysProcAttr
