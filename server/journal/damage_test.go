package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// sample is a log of several segments, closed, and the records in it.
func sample(t *testing.T) (all map[string]string, records []string) {
	t.Helper()
	o := options(quickDir(t))
	j, _ := open(t, o)
	records = numbered(60, 1500)
	keepEach(t, j, records...)
	shut(t, j)
	return files(t, j.where.dir), records
}

// reopen opens what a damaged log holds. Open must end soon and must not panic.
func reopen(t *testing.T, o Options) (j *Journal, got []string, logs string) {
	t.Helper()
	l := &logged{}
	o.Logger = l.logger()
	slow := time.AfterFunc(patience, func() { panic("Open does not return") })
	defer slow.Stop()
	j, got = open(t, o)
	return j, got, l.String()
}

// subsequence reports whether got is want without some of its records.
func subsequence(got, want []string) bool {
	for _, w := range want {
		if len(got) > 0 && got[0] == w {
			got = got[1:]
		}
	}
	return len(got) == 0
}

// TestDamage spoils a log in a random place: no record is there that was not, the order is
// kept, at most the group that was hit is lost, a loss is said, the old files are kept, and
// the journal works.
func TestDamage(t *testing.T) {
	random := chance(t)
	all, want := sample(t)
	names := slices.Sorted(maps.Keys(all))
	built, lossless := 0, 0
	for n := range 200 {
		o := options(quickDir(t))
		dir := filepath.Join(o.Dir, logName)
		spoiled := maps.Clone(all)
		name := names[random.IntN(len(names))]
		b := []byte(spoiled[name])
		used := len(strings.TrimRight(spoiled[name], "\x00"))
		at := random.IntN(max(used, 1))
		b[at] ^= byte(1 + random.IntN(255))
		spoiled[name] = string(b)
		restore(t, dir, spoiled)
		where := fmt.Sprintf("case %d, byte %d of %s", n, at, name)
		j, got, logs := reopen(t, o)
		if !subsequence(got, want) || len(got) < len(want)-1 {
			t.Fatalf("%s: %d records of %d\n%s", where, len(got), len(want), logs)
		}
		if len(got) < len(want) && logs == "" {
			t.Fatalf("%s: a record was lost and nothing said", where)
		}
		if len(got) == len(want) {
			lossless++
		}
		if aside, _ := filepath.Glob(filepath.Join(o.Dir, asideName+"*")); len(aside) > 0 {
			built++
			if kept := files(t, aside[0]); fmt.Sprint(kept) != fmt.Sprint(spoiled) && !strings.Contains(logs, "ends at") {
				t.Fatalf("%s: what was moved aside is not what was there\n%s", where, logs)
			}
			if !strings.Contains(logs, "level=ERROR") || j.Mark() <= uint64(len(got)) {
				t.Fatalf("%s: mark %d\n%s", where, j.Mark(), logs)
			}
		}
		keepEach(t, j, "more")
		shut(t, j)
		j, again, logs := reopen(t, o)
		same(t, again, append(got, "more"))
		if logs != "" {
			t.Fatalf("%s: said again: %s", where, logs)
		}
		shut(t, j)
	}
	if built == 0 {
		t.Error("no damage was noticed")
	}
	t.Logf("%d logs built anew, %d without loss", built, lossless)
}

// TestDamagedEverywhere spoils many bytes, cuts files, removes them and mixes them up.
func TestDamagedEverywhere(t *testing.T) {
	random := chance(t)
	all, want := sample(t)
	names := slices.Sorted(maps.Keys(all))
	for n := range 100 {
		o := options(quickDir(t))
		spoiled := maps.Clone(all)
		for range 1 + random.IntN(3) {
			name := names[random.IntN(len(names))]
			b := []byte(spoiled[name])
			switch random.IntN(5) {
			case 0:
				b = b[:random.IntN(len(b)+1)]
			case 1:
				delete(spoiled, name)
				continue
			case 2:
				for range 20 {
					if len(b) > 0 {
						b[random.IntN(len(b))] = byte(random.Uint32())
					}
				}
			case 3:
				if len(b) > 0 {
					at := random.IntN(len(b))
					clear(b[at:min(len(b), at+random.IntN(8192))])
				}
			case 4:
				b = []byte(spoiled[names[random.IntN(len(names))]])
			}
			spoiled[name] = string(b)
		}
		restore(t, filepath.Join(o.Dir, logName), spoiled)
		if _, err := Inspect(o.Dir, nil); err != nil && !strings.Contains(err.Error(), "there is no journal") {
			t.Errorf("case %d: inspected: %v", n, err)
		}
		j, got, logs := reopen(t, o)
		if !subsequence(got, want) {
			t.Fatalf("case %d: records out of order or unknown\n%s", n, logs)
		}
		keepEach(t, j, "more")
		shut(t, j)
		j, again, _ := reopen(t, o)
		same(t, again, append(got, "more"))
		shut(t, j)
	}
}

// TestTruncatedFiles cuts the last segment everywhere around a group: what is before the
// cut is there.
func TestTruncatedFiles(t *testing.T) {
	all, want := sample(t)
	var last string
	for name := range all {
		if strings.HasSuffix(name, ".wal") {
			last = max(last, name)
		}
	}
	used := len(strings.TrimRight(all[last], "\x00"))
	for cut := 0; cut < used; cut += 1 + used/150 {
		o := options(quickDir(t))
		spoiled := maps.Clone(all)
		spoiled[last] = spoiled[last][:cut]
		restore(t, filepath.Join(o.Dir, logName), spoiled)
		j, got, logs := reopen(t, o)
		if same(t, got, want[:len(got)]); strings.Contains(logs, "damaged") {
			t.Errorf("cut at %d: %s", cut, logs)
		}
		keepEach(t, j, "more")
		shut(t, j)
		j, again, _ := reopen(t, o)
		same(t, again, append(got, "more"))
		shut(t, j)
	}
}

// TestMetaMissing loses nothing: the segments say themselves what is in them.
func TestMetaMissing(t *testing.T) {
	all, want := sample(t)
	for name, spoil := range map[string]func(map[string]string){
		"missing": func(m map[string]string) { delete(m, metaName) },
		"nothing else": func(m map[string]string) {
			maps.DeleteFunc(m, func(name, _ string) bool { return name != metaName })
			m[metaName] = "?"
		},
		"empty":                      func(m map[string]string) { m[metaName] = "" },
		"cut":                        func(m map[string]string) { m[metaName] = m[metaName][:50] },
		"garbage":                    func(m map[string]string) { m[metaName] = strings.Repeat("lorem ipsum\n", 100) },
		"one back":                   func(m map[string]string) { m[metaName] = older(t, m[metaName]) },
		"a stranger among the files": func(m map[string]string) { m["stranger.wal"] = "?" },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(quickDir(t))
			spoiled := maps.Clone(all)
			spoil(spoiled)
			restore(t, filepath.Join(o.Dir, logName), spoiled)
			want := want
			if name == "nothing else" {
				want = nil
			}
			info, err := Inspect(o.Dir, nil)
			if err != nil || info.Records != uint64(len(want)) || len(info.Damage) == 0 {
				t.Errorf("inspected: %+v, %v", info, err)
			}
			j, got, logs := reopen(t, o)
			same(t, got, want)
			if !strings.Contains(logs, "the journal was damaged") || !strings.Contains(logs, "lost_groups=0") {
				t.Error(logs)
			}
			if j.Stored() != uint64(len(want)) {
				t.Errorf("the last mark is %d", j.Stored())
			}
			aside, _ := filepath.Glob(filepath.Join(o.Dir, asideName+"*"))
			if info, err := Inspect(aside[0], nil); err != nil || info.Records != uint64(len(want)) {
				t.Errorf("inspected what was moved aside: %+v, %v", info, err)
			}
			shut(t, j)
		})
	}
}

// older is the meta file as it was one segment ago.
func older(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	restore(t, dir, map[string]string{metaName: text})
	m, err := loadMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.State.NextSegmentID--
	m.State.Segments = m.State.Segments[:len(m.State.Segments)-1]
	m.tail().SealTime, m.tail().MaxIndex, m.tail().IndexStart = time.Time{}, 0, 0
	if err := m.save(dir); err != nil {
		t.Fatal(err)
	}
	return files(t, dir)[metaName]
}

// TestTornSeal cuts and spoils a segment that was sealed while the next one was not begun,
// around the index and the commit behind its last group: raft-wal alone would answer
// ErrSealed for good.
func TestTornSeal(t *testing.T) {
	random := chance(t)
	all, want := sample(t)
	all[metaName] = older(t, all[metaName])
	names := slices.Sorted(maps.Keys(all))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".wal") })
	delete(all, names[len(names)-1])
	tail := names[len(names)-2]
	used := len(strings.TrimRight(all[tail], "\x00"))
	most := 0
	for back := range 150 {
		for _, kind := range []string{"cut", "zero", "spoil"} {
			o := options(quickDir(t))
			spoiled := maps.Clone(all)
			b := []byte(spoiled[tail])
			switch kind {
			case "cut":
				b = b[:used-back]
			case "zero":
				clear(b[used-back:])
			case "spoil":
				b[used-1-back] ^= byte(1 + random.IntN(255))
			}
			spoiled[tail] = string(b)
			restore(t, filepath.Join(o.Dir, logName), spoiled)
			j, got, logs := reopen(t, o)
			same(t, got, want[:len(got)])
			keepEach(t, j, "more")
			if n := j.Stats().Failures; n > 0 || strings.Contains(logs, "damaged") {
				t.Errorf("%s at %d: %d failures\n%s", kind, back, n, logs)
			}
			if shut(t, j); most == 0 {
				most = len(got)
			}
			if len(got) < most-1 {
				t.Errorf("%s at %d: %d records of %d", kind, back, len(got), most)
			}
		}
	}
}

// TestNewer touches nothing of a newer version's log, whether its meta file says so or a group.
func TestNewer(t *testing.T) {
	all, _ := sample(t)
	body, err := json.Marshal(map[string]any{"Format": 7, "whatever": true})
	if err != nil {
		t.Fatal(err)
	}
	group := append(make([]byte, groupLen), "records in another way"...)
	dir := t.TempDir()
	restore(t, dir, map[string]string{metaName: all[metaName]})
	m, err := loadMeta(dir)
	if err != nil {
		t.Fatal(err)
	}
	tail := ""
	for name := range all {
		if strings.HasSuffix(name, ".wal") {
			tail = max(tail, name)
		}
	}
	sealGroup(group, m.ID, 61, 0)
	group[0] = 7
	sum := sumGroup(group)
	group[4], group[5], group[6], group[7] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	frame := frameOf(group, 61)
	used := (len(strings.TrimRight(all[tail], "\x00")) + 7) &^ 7
	for name, spoil := range map[string]func(map[string]string){
		"meta":  func(f map[string]string) { f[metaName] = string(metaLine(body)) + "\n" + string(body) },
		"group": func(f map[string]string) { f[tail] = f[tail][:used] + string(frame) + f[tail][used+len(frame):] },
	} {
		o := options(quickDir(t))
		spoiled := maps.Clone(all)
		spoil(spoiled)
		restore(t, filepath.Join(o.Dir, logName), spoiled)
		_, err := Open(o, func(uint64, []byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "its format is 7, this version knows 1") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Inspect(o.Dir, nil); err == nil || !strings.Contains(err.Error(), "its format is 7") {
			t.Errorf("%s: inspected: %v", name, err)
		}
		entries, _ := os.ReadDir(o.Dir)
		if fmt.Sprint(files(t, filepath.Join(o.Dir, logName))) != fmt.Sprint(spoiled) || len(entries) != 1 {
			t.Errorf("%s: something was touched", name)
		}
	}
}

// TestDamagedAndFull: there is no room for a new log, so nothing is done, and said.
func TestDamagedAndFull(t *testing.T) {
	all, want := sample(t)
	o := options(smallDisk(t, "1m"))
	spoiled := maps.Clone(all)
	delete(spoiled, metaName)
	restore(t, filepath.Join(o.Dir, logName), spoiled)
	ballast := fill(t, o.Dir)
	for range 2 {
		_, err := Open(o, func(uint64, []byte) error { return nil })
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("got %v", err)
		}
	}
	entries, _ := os.ReadDir(o.Dir)
	if len(entries) != 2 || fmt.Sprint(files(t, filepath.Join(o.Dir, logName))) != fmt.Sprint(spoiled) {
		t.Errorf("something was touched: %v", entries)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	j, got := open(t, o)
	same(t, got, want)
	shut(t, j)
}

// TestCrashWhileRebuilding ends between the steps of it.
func TestCrashWhileRebuilding(t *testing.T) {
	all, want := sample(t)
	o := options(quickDir(t))
	restore(t, filepath.Join(o.Dir, newName), all) // complete, and the old one has been moved aside
	j, got := open(t, o)
	same(t, got, want)
	shut(t, j)
	restore(t, filepath.Join(o.Dir, newName), map[string]string{"half": "?"})
	j, got = open(t, o)
	same(t, got, want)
	shut(t, j)
	if entries, _ := os.ReadDir(o.Dir); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

// TestDamagedWhileRunning: the log is found damaged when it is opened anew after a failure.
func TestDamagedWhileRunning(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"gone": os.RemoveAll,
		"meta": func(dir string) error { return os.WriteFile(filepath.Join(dir, metaName), []byte("?"), 0o600) },
		"tail": func(dir string) error {
			names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
			if err == nil {
				err = os.Truncate(names[len(names)-1], 40)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(quickDir(t))
			var armed atomic.Bool
			dir := filepath.Join(o.Dir, logName)
			o.fails = func(op, _ string) error {
				if op == "write" && armed.CompareAndSwap(true, false) {
					if err := spoil(dir); err != nil {
						t.Error(err)
					}
					return syscall.EIO
				}
				return nil
			}
			logs := &logged{}
			o.Logger = logs.logger()
			j, _ := open(t, o)
			want := numbered(30, 3000)
			keepEach(t, j, want...)
			armed.Store(true)
			keepEach(t, j, "next", "more")
			marks := j.Stored()
			shut(t, j)
			if !strings.Contains(logs.String(), "the journal was damaged") {
				t.Error(logs)
			}
			j, got := open(t, o)
			if !subsequence(got, append(want, "next", "more")) || len(got) == 0 || j.Stored() != marks {
				t.Errorf("%d records, stored %d, was %d\n%s", len(got), j.Stored(), marks, logs)
			}
			shut(t, j)
		})
	}
}

// TestLastFileGone: what was in the file that is appended to cannot be missed, but it is
// said that the file is not there. A new log, one that was opened and closed, and one that
// ended in a full file say nothing.
func TestLastFileGone(t *testing.T) {
	for _, empty := range []bool{false, true} {
		logs := &logged{}
		o := options(quickDir(t))
		o.Logger = logs.logger()
		for range 2 {
			j, _ := open(t, o)
			shut(t, j)
		}
		for range 2 {
			j, _ := open(t, o)
			keepEach(t, j, numbered(10, 9<<10)...)
			shut(t, j)
		}
		if logs.String() != "" {
			t.Fatal(logs)
		}
		j, had := open(t, o)
		keepEach(t, j, "in the last file")
		had = append(had, "in the last file")
		last := j.store.tailPath()
		shut(t, j)
		if err := os.Remove(last); err != nil {
			t.Fatal(err)
		}
		if empty {
			if err := os.WriteFile(last, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j, got := open(t, o)
		if len(got) >= len(had) || !strings.Contains(logs.String(), "is missing or empty") {
			t.Errorf("empty %v: %d records of %d, and it says %q", empty, len(got), len(had), logs)
		}
		same(t, got, had[:len(got)])
		keepEach(t, j, "goes on")
		shut(t, j)
	}
}
