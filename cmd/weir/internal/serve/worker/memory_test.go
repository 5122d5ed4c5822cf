package worker

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/environment"
)

// TestFindMemory checks the memory that findMemory finds on machines and in containers of all kinds.
func TestFindMemory(t *testing.T) {
	const mib = 1 << 20
	v2 := map[string]string{
		"proc/self/cgroup": "0::/pods/weir\n", "proc/meminfo": "MemTotal:       8388608 kB\nMemFree: 1 kB\n",
		"sys/fs/cgroup/pods/weir/memory.max": "max\n",
	}
	v1 := map[string]string{
		"proc/self/cgroup": "9:cpu:/x\n4:memory,hugetlb:/a/b\n0::/\n", "proc/meminfo": "MemTotal: 8388608 kB\n",
		"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
	}
	with := func(files map[string]string, more ...string) map[string]string {
		all := map[string]string{}
		for name, text := range files {
			all[name] = text
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		asked int64
		goMax int64
		want  int64
		from  string
	}{
		{"its own group", with(v2, "sys/fs/cgroup/pods/weir/memory.max", "471859200\n"), 0, 0, 450 * mib, "/sys/fs/cgroup/pods/weir/memory.max"},
		{"high is lower than max", with(v2, "sys/fs/cgroup/pods/weir/memory.max", "471859200\n", "sys/fs/cgroup/pods/weir/memory.high", "419430400"), 0, 0, 400 * mib, "/sys/fs/cgroup/pods/weir/memory.high"},
		{"a parent", with(v2, "sys/fs/cgroup/pods/memory.max", "314572800\n"), 0, 0, 300 * mib, "/sys/fs/cgroup/pods/memory.max"},
		{"a container's root", with(v2, "sys/fs/cgroup/memory.max", "314572800\n"), 0, 0, 300 * mib, "/sys/fs/cgroup/memory.max"},
		{"the first version", with(v1, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "314572800\n"), 0, 0, 300 * mib, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		{"both versions", with(v1, "sys/fs/cgroup/memory/memory.limit_in_bytes", "524288000", "sys/fs/cgroup/unified/memory.max", "419430400"), 0, 0, 400 * mib, "/sys/fs/cgroup/unified/memory.max"},
		{"GOMEMLIMIT", v2, 0, 200 * mib, 200 * mib, "GOMEMLIMIT"},
		{"nothing is set", v2, 0, 0, 4096 * mib, "half of this machine's memory"},
		{"nothing can be read", nil, 0, 0, 1024 * mib, "nothing tells what there is"},
		{"WEIR_MEMORY", v2, 128 * mib, 0, 128 * mib, "WEIR_MEMORY"},
		{"WEIR_MEMORY above the machine's", v1, 1 << 40, 200 * mib, 1 << 40, "WEIR_MEMORY"},
		{"WEIR_MEMORY above the kernel's limit", with(v2, "sys/fs/cgroup/memory.max", "314572800\n"), 1 << 40, 0, 300 * mib, "/sys/fs/cgroup/memory.max"},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			writeText(t, path, text)
		}
		if c.goMax == 0 {
			c.goMax = math.MaxInt64
		}
		got, err := findMemory(c.asked, surroundings{root: root, goLimit: c.goMax})
		if err != nil || got.limit != c.want || got.source != c.from {
			t.Errorf("%s: found %d from %q (%v), want %d from %q", c.name, got.limit, got.source, err, c.want, c.from)
		}
		if got.soft <= 0 || got.soft > got.limit {
			t.Errorf("%s: of %d the runtime may use %d", c.name, got.limit, got.soft)
		}
	}
}

// TestTooLittleMemory checks that a start with too little memory fails with a clear error.
func TestTooLittleMemory(t *testing.T) {
	root := t.TempDir()
	writeText(t, filepath.Join(root, "nothing"), "")
	_, err := findMemory(0, surroundings{root: root, goLimit: 10 << 20})
	if err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT allows 10 MiB of memory, weir needs 96") {
		t.Errorf("10 MiB: %v", err)
	}
	t.Setenv("WEIR_MEMORY", "10MiB")
	if _, err := environment.Read(); err == nil || !strings.Contains(err.Error(), "WEIR_MEMORY") {
		t.Errorf("WEIR_MEMORY of 10 MiB: %v", err)
	}
}
