package gateway

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"subway/core/router"
	"subway/server/callback"
	"subway/server/journal"
)

// Inspect writes what is in the journal of a data directory, for people; with records, a
// line for each record as well. It changes nothing, and a Gateway may be running.
func Inspect(out io.Writer, dir string, records bool) error {
	type tally struct{ n, bytes int }
	byKind := map[string]*tally{}
	info, err := journal.Inspect(dir, func(mark uint64, rec []byte) error {
		name, line := describe(rec)
		t := byKind[name]
		if t == nil {
			t = &tally{}
			byKind[name] = t
		}
		t.n++
		t.bytes += len(rec)
		if !records {
			return nil
		}
		_, err := fmt.Fprintf(out, "%d %s %q\n", mark, name, line)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "directory  %s, format %d\n", info.Dir, info.Format)
	fmt.Fprintf(out, "disk       %d bytes in %d segments\n", info.DiskBytes, info.Segments)
	fmt.Fprintf(out, "groups     %d, marks %d to %d, %d bytes\n", info.Groups, info.First, info.Last, info.Bytes)
	if info.Groups > 0 {
		fmt.Fprintf(out, "stored     %s to %s\n", stamp(info.Oldest), stamp(info.Newest))
	}
	fmt.Fprintf(out, "records    %d\n", info.Records)
	for _, name := range slices.SortedFunc(maps.Keys(byKind), func(a, b string) int { return cmp.Compare(byKind[b].n, byKind[a].n) }) {
		fmt.Fprintf(out, "           %-15s %d, %d bytes\n", name, byKind[name].n, byKind[name].bytes)
	}
	for _, d := range info.Damage {
		fmt.Fprintf(out, "damage     %s\n", d)
	}
	if info.LostGroups > 0 || info.LostBytes > 0 {
		fmt.Fprintf(out, "lost       %d groups, %d bytes cannot be read\n", info.LostGroups, info.LostBytes)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func describe(rec []byte) (name, line string) {
	if len(rec) > 0 {
		if name, line = callback.Describe(rec[0], rec[1:]); name == "" {
			name, line = router.Describe(rec[0], rec[1:])
		}
	}
	if name == "" {
		name = "unknown"
	}
	return name, line
}
