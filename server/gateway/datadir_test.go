package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataDirOfOne: a directory in use is refused, also where somebody has removed the lock
// file or comes by another path.
func TestDataDirOfOne(t *testing.T) {
	o := durable(t)
	p := launch(t, o)
	link := o
	link.DataDir = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(o.DataDir, link.DataDir); err != nil {
		t.Fatal(err)
	}
	for _, removed := range []bool{false, true} {
		if removed {
			if err := os.Remove(filepath.Join(o.DataDir, "lock")); err != nil {
				t.Fatal(err)
			}
		}
		for _, second := range []childOptions{o, link} {
			q := spawn(t, second)
			q.doomed = true
			if q.listens() || !strings.Contains(q.line, "in use by another process") {
				t.Errorf("lock file removed %v: a second process says %q", removed, q.line)
			}
		}
	}
	p.end()
	p = launch(t, o)
	p.want(200, "", "GET", "/readyz", "")
}

// TestJournalGone: a directory that was used and holds no journal is served, and it is said.
func TestJournalGone(t *testing.T) {
	o := durable(t)
	o.Log = true
	p := launch(t, o)
	p.end()
	if said := p.stderr.String(); strings.Contains(said, "no journal in it") {
		t.Errorf("a new one says\n%s", said)
	}
	if err := os.RemoveAll(filepath.Join(o.DataDir, "journal")); err != nil {
		t.Fatal(err)
	}
	p = launch(t, o)
	p.want(200, "", "GET", "/readyz", "")
	p.end()
	if said := p.stderr.String(); !strings.Contains(said, "no journal in it") {
		t.Errorf("it says\n%s", said)
	}
}
