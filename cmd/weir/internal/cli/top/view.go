package top

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Order is the order of the buckets.
type Order string

// The orders.
const (
	ByDepth Order = "depth"
	ByLevel Order = "level" // the fullest bucket first
	ByEmpty Order = "empty" // the bucket that takes longest to become empty first
	ByCome  Order = "in"    // the most arriving jobs first
	ByKey   Order = "key"
)

// Orders returns all orders, in the sequence in which the key s goes through them.
func Orders() []Order { return []Order{ByDepth, ByLevel, ByEmpty, ByCome, ByKey} }

// View is what the user has chosen to see. The zero value sorts by depth and shows everything.
type View struct {
	Order    Order
	Filter   string // show only keys and APIs that contain this text
	Color    bool
	selected place
	typing   bool    // the user is typing the filter
	helping  bool    // the help replaces the frame
	asked    *Word   // the action that waits for y or n; nil if there is none
	Said     string  // the outcome of the last action
	Trouble  string  // why the frame is old; "" if it is not old
	shown    []place // the buckets in the order in which they were last drawn
}

// place identifies a bucket.
type place struct{ api, key string }

// Deed is an action that a key asks for, other than a change of the view itself.
type Deed string

// The actions.
const (
	Nothing Deed = ""
	Quit    Deed = "quit"
	Pause   Deed = "pause"
	Resume  Deed = "resume"
)

// Word is an action, and the API or key that it applies to.
type Word struct {
	Deed     Deed
	API, Key string // Key "": the whole api
}

// about returns the name of the API or key.
func (w *Word) about() string {
	if w.Key == "" {
		return "all of " + visible(w.API)
	}
	return visible(w.API) + "/" + visible(w.Key)
}

// Keys without a letter, as readKey returns them.
const (
	keyUp = rune(0xe000 + iota) // from Unicode's private use area, which no keyboard sends
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyEnter  = '\r'
	keyEscape = '\x1b'
	keyErase  = '\x7f'
	keyBreak  = '\x03' // Ctrl-C
)

// mostFilter bounds the bytes of the filter.
const mostFilter = 128

// Press handles a key. It changes the view, and returns the action to carry out.
func (v *View) Press(key rune) Word {
	v.Said = ""
	switch {
	case key == keyBreak:
		return Word{Deed: Quit}
	case v.asked != nil:
		asked := *v.asked
		v.asked = nil
		if key == 'y' || key == 'Y' {
			return asked
		}
		v.Said = "nothing was changed"
	case v.typing:
		v.typed(key)
	case v.helping:
		v.helping = false
		if key == 'q' || key == 'Q' {
			return Word{Deed: Quit}
		}
	default:
		return v.command(key)
	}
	return Word{}
}

func (v *View) typed(key rune) {
	switch {
	case key == keyEnter:
		v.typing = false
	case key == keyEscape:
		v.typing, v.Filter = false, ""
	case key == keyErase || key == '\b':
		_, size := utf8.DecodeLastRuneInString(v.Filter)
		v.Filter = v.Filter[:len(v.Filter)-size]
	case unicode.IsPrint(key) && len(v.Filter) < mostFilter:
		v.Filter += string(key)
	}
}

func (v *View) command(key rune) Word {
	switch key {
	case 'q', 'Q':
		return Word{Deed: Quit}
	case 's':
		v.Order = next(Orders(), v.order(), 1)
	case 'S':
		v.Order = next(Orders(), v.order(), -1)
	case '/':
		v.typing = true
	case '?':
		v.helping = true
	case keyEscape:
		v.Filter = ""
	case 'p':
		v.ask(Pause, v.selected.key)
	case 'P':
		v.ask(Pause, "")
	case 'r':
		v.ask(Resume, v.selected.key)
	case 'R':
		v.ask(Resume, "")
	default:
		v.move(key)
	}
	return Word{}
}

// ask asks the user to confirm an action.
func (v *View) ask(deed Deed, key string) {
	if v.selected.api == "" {
		v.Said = "no bucket is selected"
		return
	}
	v.asked = &Word{deed, v.selected.api, key}
}

func (v *View) move(key rune) {
	if len(v.shown) == 0 {
		return
	}
	at := slices.Index(v.shown, v.selected)
	switch key {
	case keyUp, 'k':
		at--
	case keyDown, 'j':
		at++
	case keyPageUp:
		at -= 10
	case keyPageDown:
		at += 10
	case keyHome, 'g':
		at = 0
	case keyEnd, 'G':
		at = len(v.shown) - 1
	default:
		return
	}
	v.selected = v.shown[min(max(at, 0), len(v.shown)-1)]
}

func (v *View) order() Order { return cmp.Or(v.Order, ByDepth) }

func next[T comparable](all []T, of T, by int) T {
	return all[(max(0, slices.Index(all, of))+by+len(all))%len(all)]
}

// choose returns the buckets of a frame that the view shows, in the view's order. If the selected bucket is no longer
// shown, it selects the first shown one.
func (v *View) choose(f *Frame) []*Bucket {
	var chosen []*Bucket
	for i := range f.Buckets {
		if b := &f.Buckets[i]; strings.Contains(b.Key, v.Filter) || strings.Contains(b.API, v.Filter) {
			chosen = append(chosen, b)
		}
	}
	slices.SortStableFunc(chosen, func(a, b *Bucket) int {
		by := 0
		switch v.order() {
		case ByLevel:
			by = cmp.Compare(b.level(), a.level())
		case ByEmpty:
			by = cmp.Compare(b.wait(), a.wait())
		case ByCome:
			by = cmp.Compare(b.come(), a.come())
		case ByDepth:
			by = cmp.Compare(b.Depth, a.Depth)
		case ByKey:
		}
		return cmp.Or(by, cmp.Compare(a.Key, b.Key), cmp.Compare(a.API, b.API))
	})
	v.shown = v.shown[:0]
	for _, b := range chosen {
		v.shown = append(v.shown, place{b.API, b.Key})
	}
	if !slices.Contains(v.shown, v.selected) {
		v.selected = place{}
		if len(v.shown) > 0 {
			v.selected = v.shown[0]
		}
	}
	return chosen
}

// level returns how full a bucket is, from 0 to 1. It is above 1 if the capacity was lowered.
func (b *Bucket) level() float64 { return float64(b.Depth) / float64(max(1, b.Capacity)) }

// wait returns the time in ms until the bucket is empty. An unknown time counts as longest.
func (b *Bucket) wait() int64 {
	if b.WaitMS < 0 {
		return 1<<63 - 1
	}
	return b.WaitMS
}

func (b *Bucket) come() float64 {
	if b.ComePerS == nil {
		return 0
	}
	return *b.ComePerS
}
