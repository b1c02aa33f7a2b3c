package journal

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

// logName is the log's directory in Options.Dir; it is built anew under newName, and a
// damaged one is kept under asideName with the time.
const (
	logName   = "journal"
	newName   = "journal.new"
	asideName = "journal.damaged-"
)

// batchBytes bounds what is made stable together while a log is built anew.
const batchBytes = 4 << 20

// rebuild makes a new log of all groups of the damaged one that can be read, then moves
// that one aside, whole. The marks rise: the last group gets the highest mark that was
// found, or last if that is higher, and those before it the ones before. If there is no
// room for it nothing is changed.
func rebuild(dir string, w where, reason string, last uint64, log *slog.Logger) error {
	count, found, err := survey(w.dir)
	if err != nil {
		return fmt.Errorf("it is damaged (%s) and cannot be read: %w", reason, err)
	}
	target := w
	target.dir = filepath.Join(dir, newName)
	if err := copyGroups(w.dir, target, max(found.last, last)+1-count); err != nil {
		_ = os.RemoveAll(target.dir)
		return fmt.Errorf("it is damaged (%s) and cannot be built anew: %w", reason, err)
	}
	aside := filepath.Join(dir, fmt.Sprintf("%s%d", asideName, time.Now().Unix()))
	for n := 1; ; n++ { // a name that is free
		if _, err := os.Lstat(aside); isMissing(err) {
			break
		}
		aside = filepath.Join(dir, fmt.Sprintf("%s%d.%d", asideName, time.Now().Unix(), n))
	}
	// A crash between the two is seen to by finishRebuild.
	if err := os.Rename(w.dir, aside); err != nil && !isMissing(err) {
		return fmt.Errorf("it is damaged (%s) and cannot be moved aside: %w", reason, err)
	}
	if err := finishRebuild(dir); err != nil {
		return fmt.Errorf("it is damaged (%s) and cannot be replaced: %w", reason, err)
	}
	log.Error("the journal was damaged: what could be read of it is kept", "reason", reason,
		"groups", count, "lost_groups", found.gaps, "unreadable_bytes", found.lost, "old_files", aside)
	return nil
}

// finishRebuild gives a log that was built anew its name, if the damaged one has lost it.
func finishRebuild(dir string) error {
	to, from := filepath.Join(dir, logName), filepath.Join(dir, newName)
	if _, err := os.Lstat(to); !isMissing(err) {
		_ = os.RemoveAll(from) // not complete
		return err
	}
	if err := os.Rename(from, to); err != nil && !isMissing(err) {
		return err
	}
	return syncDir(dir)
}

// survey counts the groups that can be read.
func survey(dir string) (count uint64, r *reader, err error) {
	r, err = newReader(dir)
	if isMissing(err) {
		return 0, &reader{}, nil
	}
	if err != nil {
		return 0, nil, err
	}
	err = r.each(func(group) error {
		count++
		return nil
	})
	return count, r, err
}

// copyGroups makes a log of the groups that can be read, the first of which gets the mark first.
func copyGroups(from string, to where, first uint64) error {
	if err := os.RemoveAll(to.dir); err != nil {
		return err
	}
	if err := os.Mkdir(to.dir, 0o700); err != nil {
		return err
	}
	if err := newMeta(first, to.segmentBytes).save(to.dir); err != nil {
		return err
	}
	s, err := openStore(to)
	if err != nil {
		return err
	}
	defer s.close()
	r, err := newReader(from)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	b := batch{s: s, next: first}
	if err := r.each(b.add); err != nil {
		return err
	}
	return b.flush()
}

// batch is groups that are copied and made stable together.
type batch struct {
	s    *store
	next uint64 // mark
	logs []*raft.Log
	size int
}

func (b *batch) add(g group) error {
	data := append(make([]byte, groupLen, groupLen+len(g.records)), g.records...)
	sealGroup(data, b.s.id, b.next, g.nanos)
	b.logs = append(b.logs, &raft.Log{Index: b.next, Data: data})
	b.next++
	if b.size += len(data); b.size < batchBytes {
		return nil
	}
	return b.flush()
}

func (b *batch) flush() error {
	if len(b.logs) == 0 {
		return nil
	}
	err := b.s.wal.StoreLogs(b.logs)
	b.logs, b.size = b.logs[:0], 0
	return err
}
