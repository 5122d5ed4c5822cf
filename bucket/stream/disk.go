package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Disk makes acknowledged messages durable, for a server that acknowledges before it syncs.
type Disk interface {
	// Flush returns when everything that the stream had acknowledged before the call is on disk. After an error it is
	// unknown what is on disk.
	Flush(ctx context.Context, stream string) error
	// Writing says that messages for the stream are on their way, so that a flush that is about to begin may wait a
	// moment for them. The caller must call written once, when the messages have arrived or will not arrive.
	Writing(stream string) (written func())
}

// OnDisk returns a JetStream that waits for the disk. Its writes of messages, of key-value entries and of streams
// return when the disk has them. Deletes and purges of messages do not wait: a process may also be killed before a
// delete, so it must cope with deleted messages that come back. Asynchronous publishes are refused. If disk is nil,
// OnDisk returns js itself.
func OnDisk(js jetstream.JetStream, disk Disk) jetstream.JetStream {
	if disk == nil {
		return js
	}
	return flushed{js, disk}
}

// DiskOf returns the disk of a JetStream that OnDisk returned, or nil for any other JetStream.
func DiskOf(js jetstream.JetStream) Disk {
	if f, ok := js.(flushed); ok {
		return f.disk
	}
	return nil
}

type flushed struct {
	jetstream.JetStream
	disk Disk
}

// Publish implements jetstream.Publisher.
func (f flushed) Publish(ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return f.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, opts...)
}

// PublishMsg implements jetstream.Publisher.
func (f flushed) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := f.JetStream.PublishMsg(ctx, m, opts...)
	if err == nil {
		err = f.disk.Flush(ctx, ack.Stream)
	}
	if err != nil {
		return nil, err
	}
	return ack, nil
}

// PublishAsync implements jetstream.Publisher: it fails, since it could not wait for the disk.
func (f flushed) PublishAsync(subject string, data []byte, _ ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	return f.PublishMsgAsync(&nats.Msg{Subject: subject, Data: data})
}

// PublishMsgAsync implements jetstream.Publisher: it fails, since it could not wait for the disk.
func (f flushed) PublishMsgAsync(m *nats.Msg, _ ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	return nil, fmt.Errorf("publish to %s: a Writer stores many messages at once", m.Subject)
}

// made returns the stream when the disk has it.
func (f flushed) made(ctx context.Context, s jetstream.Stream, err error) (jetstream.Stream, error) {
	if err == nil {
		err = f.disk.Flush(ctx, s.CachedInfo().Config.Name)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// CreateStream implements jetstream.StreamManager.
func (f flushed) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := f.JetStream.CreateStream(ctx, cfg)
	return f.made(ctx, s, err)
}

// UpdateStream implements jetstream.StreamManager.
func (f flushed) UpdateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := f.JetStream.UpdateStream(ctx, cfg)
	return f.made(ctx, s, err)
}

// CreateOrUpdateStream implements jetstream.StreamManager.
func (f flushed) CreateOrUpdateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := f.JetStream.CreateOrUpdateStream(ctx, cfg)
	return f.made(ctx, s, err)
}

func (f flushed) entries(kv jetstream.KeyValue, err error) (jetstream.KeyValue, error) {
	if err != nil {
		return nil, err
	}
	return flushedEntries{kv, f.disk}, nil
}

// KeyValue implements jetstream.KeyValueManager.
func (f flushed) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	return f.entries(f.JetStream.KeyValue(ctx, bucket))
}

// CreateKeyValue implements jetstream.KeyValueManager.
func (f flushed) CreateKeyValue(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	return f.entries(f.JetStream.CreateKeyValue(ctx, cfg))
}

// UpdateKeyValue implements jetstream.KeyValueManager.
func (f flushed) UpdateKeyValue(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	return f.entries(f.JetStream.UpdateKeyValue(ctx, cfg))
}

// CreateOrUpdateKeyValue implements jetstream.KeyValueManager.
func (f flushed) CreateOrUpdateKeyValue(ctx context.Context, cfg jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	return f.entries(f.JetStream.CreateOrUpdateKeyValue(ctx, cfg))
}

// flushedEntries is a key-value bucket whose writes return when the disk has them.
type flushedEntries struct {
	jetstream.KeyValue
	disk Disk
}

func (f flushedEntries) written(ctx context.Context, revision uint64, err error) (uint64, error) {
	if err == nil {
		err = f.disk.Flush(ctx, "KV_"+f.Bucket())
	}
	if err != nil {
		return 0, err
	}
	return revision, nil
}

// Put implements jetstream.KeyValue.
func (f flushedEntries) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := f.KeyValue.Put(ctx, key, value)
	return f.written(ctx, revision, err)
}

// PutString implements jetstream.KeyValue.
func (f flushedEntries) PutString(ctx context.Context, key, value string) (uint64, error) {
	return f.Put(ctx, key, []byte(value))
}

// Create implements jetstream.KeyValue.
func (f flushedEntries) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	revision, err := f.KeyValue.Create(ctx, key, value, opts...)
	return f.written(ctx, revision, err)
}

// Update implements jetstream.KeyValue.
func (f flushedEntries) Update(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	revision, err := f.KeyValue.Update(ctx, key, value, last)
	return f.written(ctx, revision, err)
}

// Delete implements jetstream.KeyValue. It waits for the disk, because deleting an entry stores a message.
func (f flushedEntries) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	_, err := f.written(ctx, 0, f.KeyValue.Delete(ctx, key, opts...))
	return err
}

// Purge implements jetstream.KeyValue. It waits for the disk, because purging an entry stores a message.
func (f flushedEntries) Purge(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	_, err := f.written(ctx, 0, f.KeyValue.Purge(ctx, key, opts...))
	return err
}

// Watch implements jetstream.KeyValue. It delivers an entry only when the disk has it. Another writer, for example an
// operator's command, may get its acknowledgement before. If that writer waits until the entry is in force, it waits
// for the disk too.
func (f flushedEntries) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	watcher, err := f.KeyValue.Watch(ctx, keys, opts...)
	return f.watching(ctx, watcher, err)
}

// WatchAll implements jetstream.KeyValue, as Watch does.
func (f flushedEntries) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	watcher, err := f.KeyValue.WatchAll(ctx, opts...)
	return f.watching(ctx, watcher, err)
}

// mostWatched bounds the entries that are delivered after one flush.
const mostWatched = 256

// flushedWatcher delivers the entries of another watcher when the disk has them.
type flushedWatcher struct {
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
	stopped context.CancelFunc
}

func (f flushedEntries) watching(ctx context.Context, of jetstream.KeyWatcher, err error) (jetstream.KeyWatcher, error) {
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &flushedWatcher{KeyWatcher: of, updates: make(chan jetstream.KeyValueEntry, mostWatched), stopped: stop}
	go w.run(ctx, f)
	return w, nil
}

// run delivers entries until the other watcher ends, ctx ends, or the disk fails. Then it closes the updates.
func (w *flushedWatcher) run(ctx context.Context, f flushedEntries) {
	defer close(w.updates)
	for {
		var some []jetstream.KeyValueEntry
		select {
		case entry, open := <-w.KeyWatcher.Updates():
			if !open {
				return
			}
			some = append(some, entry)
		case <-ctx.Done():
			return
		}
		some = append(some, w.more()...)
		if _, err := f.written(ctx, 0, nil); err != nil {
			return
		}
		for _, entry := range some {
			select {
			case w.updates <- entry:
			case <-ctx.Done():
				return
			}
		}
	}
}

// more returns the entries that are waiting now, without blocking.
func (w *flushedWatcher) more() (some []jetstream.KeyValueEntry) {
	for len(some) < mostWatched {
		select {
		case entry, open := <-w.KeyWatcher.Updates():
			if !open {
				return some // the next round of run's loop finds it closed too
			}
			some = append(some, entry)
		default:
			return some
		}
	}
	return some
}

// Updates implements jetstream.KeyWatcher.
func (w *flushedWatcher) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

// Stop implements jetstream.KeyWatcher.
func (w *flushedWatcher) Stop() error {
	w.stopped()
	return w.KeyWatcher.Stop()
}
