package queue

// book counts the unfinished jobs of every key of one partition, as far as this process knows them: the jobs it is
// about to store, and those it read from the stream. A key without jobs takes no room. The caller must lock the book.
type book struct {
	keys map[string]*account
	jobs int // of all keys
}

// account is one key's line in the book. Both numbers only grow while the key has jobs.
type account struct {
	entered, left uint32
}

func newBook() *book { return &book{keys: map[string]*account{}} }

// enter counts one more job of the key and returns its ticket.
func (b *book) enter(key string) (ticket uint32) {
	a := b.keys[key]
	if a == nil {
		a = &account{}
		b.keys[key] = a
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

// position returns how many unfinished jobs the key has, up to and including the job with this ticket.
func (b *book) position(key string, ticket uint32) int {
	if a := b.keys[key]; a != nil {
		return max(1, int(ticket)-int(a.left))
	}
	return 1
}
