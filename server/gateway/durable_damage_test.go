package gateway_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// remains is what a Gateway that was killed left: its files by their names under the
// data directory, without the zeros at the end, and their lengths.
type remains struct {
	content map[string][]byte
	length  map[string]int64
}

func collect(t *testing.T, dir string) remains {
	t.Helper()
	r := remains{make(map[string][]byte), make(map[string]int64)}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		end := len(b)
		for zeros := make([]byte, 4096); end >= len(zeros) && bytes.Equal(b[end-len(zeros):end], zeros); {
			end -= len(zeros)
		}
		r.content[name], r.length[name] = b[:end], int64(len(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lay writes the files into another directory.
func (r remains) lay(t *testing.T, dir string) {
	t.Helper()
	for name, b := range r.content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, r.length[name]); err != nil {
			t.Fatal(err)
		}
	}
}

// largest is the name of the largest file, the log.
func (r remains) largest() (name string) {
	for n := range r.content {
		if name == "" || len(r.content[n]) > len(r.content[name]) {
			name = n
		}
	}
	return name
}

// damage spoils a file, and says how, and up to where the log is as it was.
func (r remains) damage(rng *rand.Rand, wal string) (how string, whole int) {
	name := wal
	if rng.IntN(4) == 0 {
		names := slices.Sorted(maps.Keys(r.content))
		name = names[rng.IntN(len(names))]
	}
	b := bytes.Clone(r.content[name])
	if len(b) == 0 {
		b = []byte{0}
	}
	at := rng.IntN(len(b))
	switch kind := rng.IntN(6); kind {
	case 0:
		b[at] ^= 1 << rng.IntN(8)
		how = "a bit flipped"
	case 1:
		for i := range min(len(b)-at, 1+rng.IntN(3000)) {
			b[at+i] = byte(rng.Uint32())
		}
		how = "garbage"
	case 2:
		clear(b[at:min(len(b), at+1+rng.IntN(9000))])
		how = "zeros"
	case 3:
		b, r.length[name] = b[:at], int64(at)
		how = "cut off"
	case 4:
		copy(b[at:], b[rng.IntN(len(b)):])
		how = "a part of it over another"
	case 5:
		b = append(b, bytes.Repeat([]byte{byte(rng.Uint32())}, 1+rng.IntN(500))...)
		r.length[name] = max(r.length[name], int64(len(b)))
		at = len(r.content[name])
		how = "garbage behind its end"
	}
	r.content[name] = b
	if whole = at; name != wal {
		whole = len(r.content[wal])
	}
	return fmt.Sprintf("%s: %s at %d of %d", name, how, at, len(b)), whole
}

// kept are the bodies of records by their refs.
type kept map[string][]byte

// wreck makes the remains of a Gateway that has done some of everything.
func wreck(t *testing.T) (remains, kept) {
	o := durable(t)
	p := launch(t, o)
	edge := p.join(dedupeRegister("edge-1", "td-01", "td-02"))
	want := kept{}
	for i := range 40 {
		ref := fmt.Sprintf("ended-%d", i)
		p.post(ref, "td-01", `,"timeout":3600000`)
		edge.expectCommand(ref)
		edge.sendf(`{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"COMPLETED","result":{"mark":"%s<","of":%q}}`, ref, ref, strings.Repeat("r", i*20))
		want[ref] = p.final(ref).body
		if i%4 == 0 {
			p.post(fmt.Sprintf("open-%d", i), "td-02", `,"timeout":3600000`)
			edge.expectCommand(fmt.Sprintf("open-%d", i))
		}
	}
	p.kill()
	return collect(t, o.DataDir), want
}

// survive starts a Gateway on damaged files: it serves, and tells nothing wrong, or ends
// with one clear line. It returns what it still knows, and nil where it ended.
func survive(t *testing.T, o childOptions, life string, want kept) (got kept) {
	t.Helper()
	p := spawn(t, o)
	if !p.listens() {
		<-p.over
		said := strings.TrimSpace(p.line + p.stderr.String())
		if p.cmd.ProcessState.ExitCode() != 2 || p.line == "" || strings.Contains(said, "goroutine ") {
			t.Errorf("it ended with %v: %.2000s", p.err, said)
		}
		t.Logf("it says: %s", p.line)
		p.doomed = true
		return nil
	}
	got = kept{}
	for ref, was := range want {
		switch a := p.record(ref); {
		case a.status == 404:
		case ended(a.str("status")) && !bytes.Equal(a.body, was):
			t.Errorf("%s reads\n%s, before\n%s", ref, a.body, was)
		default:
			got[ref] = a.body
		}
	}
	p.want(200, "", "GET", "/api/commands?limit=1000", "")
	p.want(200, "", "GET", "/readyz", "")
	edge := p.join(dedupeRegister("edge-1", "td-01", "td-02"))
	p.post(life, "td-01", "")
	for edge.expect("COMMAND").str("requestRef") != life { // what is sent again
	}
	edge.respond(life)
	if a := p.final(life); a.str("status") != "COMPLETED" {
		t.Errorf("a new command: %s", a.body)
	}
	p.kill()
	if said := p.stderr.String(); strings.Contains(said, "goroutine ") {
		t.Errorf("it wrote %.2000s", said)
	}
	return got
}

// TestDamagedJournal: whatever has happened to its files, a Gateway starts with what can
// be read of them, and again, or says in one line why it does not.
func TestDamagedJournal(t *testing.T) {
	rng := seeded(t)
	whole, want := wreck(t)
	wal := whole.largest()
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := remains{maps.Clone(whole.content), maps.Clone(whole.length)}
			how, upTo := r.damage(rng, wal)
			t.Log(how)
			o := durable(t)
			o.Log = true
			r.lay(t, o.DataDir)
			got := survive(t, o, "life-1", want)
			if got == nil {
				return
			}
			older := 0
			for ref, was := range want {
				end := bytes.LastIndex(whole.content[wal], []byte(`"`+ref+`<"`))
				if end < 0 || end+2000 > upTo {
					continue
				}
				if older++; !bytes.Equal(got[ref], was) {
					t.Errorf("%s, written before the damage, reads %q", ref, got[ref])
				}
			}
			t.Logf("%d of %d records are there, %d were older than the damage", len(got), len(want), older)
			if i%3 > 0 {
				return
			}
			after := survive(t, o, "life-2", want)
			for ref, was := range got {
				if bytes.Equal(was, want[ref]) && !bytes.Equal(after[ref], was) {
					t.Errorf("after another restart %s reads %q", ref, after[ref])
				}
			}
		})
	}
}
