package proposal

import (
	"testing"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
)

// TestSameWithAnotherProfile checks that a file that changes nothing counts as the same, unless the version in force
// was stored with another profile of its vendor. Then a new version records the profile that the operator has seen.
func TestSameWithAnotherProfile(t *testing.T) {
	c, err := config.Parse([]byte("apis: {a: {url: 'http://127.0.0.1:1', vendor: stripe, bucket: {rate: 1/s, capacity: 1}}}"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[string]bool{c.Vendors()["stripe"]: true, "2001-01-01": false} {
		current := &admin.Version{StoredConfig: admin.StoredConfig{Vendors: map[string]string{"stripe": revision}}, Number: 3, Config: c}
		p := &Proposal{Config: c, current: current, last: 3}
		if d := p.differs(); d.Same != want || len(d.Changes) != 0 {
			t.Errorf("with the profile of %s it is the same: %v, changes %v", revision, d.Same, d.Changes)
		}
	}
}
