package queue

import "strings"

// book counts the unfinished jobs of every key of one partition, as far as this process knows them: the jobs it is
// about to store, and those it read from the stream. A key without jobs takes no room. Each reading has a new book. The
// lock of the partition's contents guards it.
type book struct {
	keys    map[string]*account
	jobs    int                // of all keys
	pending map[string]*idPuts // puts with a ticket, by message id
	own     map[uint64]string  // keys of the jobs that this process stored and its reader has not received
}

// account is one key's line in the book. Both numbers only grow while the key has jobs.
type account struct {
	entered, left uint32
}

// idPuts are the puts with the same message id that have a ticket.
type idPuts struct {
	puts int
	read bool // the reader got a message with this id and did not count it: the ticket of the next answered put does
}

// ticket counts a job in a book from before the job is stored. The zero ticket counts no job.
type ticket struct {
	book      *book
	key, id   string
	number    uint32
	duplicate bool // another put with this id is pending: the stream will call one of them a duplicate
}

func newBook() *book {
	return &book{keys: map[string]*account{}, pending: map[string]*idPuts{}, own: map[uint64]string{}}
}

// enter counts one more job of the key and returns its number.
func (b *book) enter(key string) (number uint32) {
	a := b.keys[key]
	if a == nil {
		a = &account{}
		b.keys[strings.Clone(key)] = a // without the subject that it may be a part of
	}
	a.entered++
	b.jobs++
	return a.entered
}

// leave subtracts one job of the key.
func (b *book) leave(key string) {
	a := b.keys[key]
	if a == nil {
		return
	}
	b.jobs--
	if a.left++; a.left == a.entered {
		delete(b.keys, key)
	}
}

func (b *book) depth(key string) int {
	if a := b.keys[key]; a != nil {
		return int(a.entered - a.left)
	}
	return 0
}

// position returns how many unfinished jobs the key has, up to and including the job with this number.
func (b *book) position(key string, number uint32) int {
	if a := b.keys[key]; a != nil {
		return max(1, int(number)-int(a.left))
	}
	return 1
}

// issue counts a job that is about to be stored with a message id.
func (b *book) issue(key, id string) ticket {
	t := ticket{book: b, key: key, id: id, number: b.enter(key), duplicate: b.pending[id] != nil}
	if !t.duplicate {
		b.pending[id] = &idPuts{}
	}
	b.pending[id].puts++
	return t
}

// settle notes that the stream has answered a put. unread is the sequence at which the stream has stored the job if the
// reader has not come to it, else 0. So the book counts each stored job once: by its ticket, or when it is read.
func (b *book) settle(t ticket, unread uint64) {
	same := b.pending[t.id]
	switch {
	case unread > 0:
		b.own[unread] = t.key // its ticket counts it
	case same.read:
		same.read = false
	default:
		b.leave(t.key)
	}
	if same.puts--; same.puts == 0 {
		delete(b.pending, t.id)
	}
}

// read counts a job that was just read from the stream, unless a ticket counts it.
func (b *book) read(seq uint64, key, id string) {
	_, own := b.own[seq]
	delete(b.own, seq)
	switch same := b.pending[id]; {
	case own:
	case same != nil && !same.read:
		same.read = true
	default:
		b.enter(key)
	}
}
