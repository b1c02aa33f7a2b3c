package store

import (
	"context"
	"database/sql"
	"errors"

	"subway/core/wire"
)

// ErrClosed is what a change fails with after Close.
var ErrClosed = errors.New("the store is closed")

// change is one thing to be made stable.
type change struct {
	apply func(*Store) error
	done  func(error) // nil: nobody asks
	must  bool        // it is kept and tried again when the disk refuses; else it fails

	// What it will make readable, for those that read before it is written.
	ref    string
	answer []byte
	item   *Item

	// What it removes, so that it can go before what waits for room.
	refs []string
	seqs []int64
}

// Remember makes a ref stable before it is handed over. It fails, and nothing is kept, if
// the disk refuses.
func (s *Store) Remember(r Record, done func(error)) {
	s.add(&change{done: done, apply: func(s *Store) error {
		return s.stmt.exec(s.ctx, s.stmt.remember, r.Ref, r.Device, int64(r.Deadline), r.TimeoutMs)
	}}, true)
}

// Answer keeps the answer to a ref; confirmed is false. msg is the store's from now on.
// While the disk refuses it is kept in memory.
func (s *Store) Answer(r Record, msg []byte, done func(error)) {
	s.add(&change{must: true, done: done, ref: r.Ref, answer: msg, apply: func(s *Store) error {
		return s.stmt.exec(s.ctx, s.stmt.answer, r.Ref, r.Device, int64(r.Deadline), r.TimeoutMs, msg)
	}}, true)
}

// Confirm notes that the Gateway has the answers to these refs. It is not urgent.
func (s *Store) Confirm(refs []string) {
	s.add(&change{must: true, apply: func(s *Store) error { return s.stmt.each(s.ctx, s.stmt.confirm, refs) }}, false)
}

// Extend moves the deadline of a ref. It is not urgent.
func (s *Store) Extend(ref string, deadline wire.Time) {
	s.add(&change{must: true, apply: func(s *Store) error {
		return s.stmt.exec(s.ctx, s.stmt.extend, int64(deadline), ref)
	}}, false)
}

// Forget removes refs. It is not urgent.
func (s *Store) Forget(refs []string) {
	s.add(&change{must: true, refs: refs, apply: func(s *Store) error { return s.stmt.each(s.ctx, s.stmt.forget, refs) }}, false)
}

// Keep adds a message that waits for the link; i.Msg is the store's from now on. While the
// disk refuses it is kept in memory.
func (s *Store) Keep(i Item, done func(error)) {
	s.add(&change{must: true, done: done, item: &i, apply: func(s *Store) error {
		return s.stmt.exec(s.ctx, s.stmt.keep, i.Seq, int64(i.Kind), i.Device, i.Ref, i.Msg)
	}}, true)
}

// Drop removes messages that waited. It is not urgent.
func (s *Store) Drop(seqs ...int64) {
	s.add(&change{must: true, seqs: seqs, apply: func(s *Store) error {
		for _, seq := range seqs {
			if err := s.stmt.exec(s.ctx, s.stmt.drop, seq); err != nil {
				return err
			}
		}
		return nil
	}}, false)
}

// add queues a change; an urgent one wakes the committer.
func (s *Store) add(c *change, urgent bool) {
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.queue = append(s.queue, c)
	}
	s.mu.Unlock()
	switch {
	case closing && c.done != nil:
		go c.done(ErrClosed) // the caller may hold a lock that it wants
	case urgent:
		s.signal()
	}
}

// statements are what the committer executes.
type statements struct {
	all []*sql.Stmt

	remember, answer, confirm, extend, forget, keep, drop *sql.Stmt
	readAnswer, readItems                                 *sql.Stmt
}

func (t *statements) prepare(ctx context.Context, conn *sql.Conn) error {
	for _, p := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&t.remember, "INSERT OR IGNORE INTO record(ref, device, deadline, timeout) VALUES (?, ?, ?, ?)"},
		{&t.answer, "INSERT INTO record(ref, device, deadline, timeout, answer) VALUES (?, ?, ?, ?, ?) ON CONFLICT(ref) DO UPDATE SET answer = excluded.answer"},
		{&t.confirm, "UPDATE record SET confirmed = 1 WHERE ref = ?"},
		{&t.extend, "UPDATE record SET deadline = ? WHERE ref = ?"},
		{&t.forget, "DELETE FROM record WHERE ref = ?"},
		{&t.keep, "INSERT OR REPLACE INTO item(seq, kind, device, ref, msg) VALUES (?, ?, ?, ?, ?)"},
		{&t.drop, "DELETE FROM item WHERE seq = ?"},
		{&t.readAnswer, "SELECT answer FROM record WHERE ref = ?"},
		{&t.readItems, "SELECT seq, kind, device, ref, msg FROM item WHERE seq > ? ORDER BY seq"},
	} {
		stmt, err := conn.PrepareContext(ctx, p.text)
		if err != nil {
			return err
		}
		*p.to = stmt
		t.all = append(t.all, stmt)
	}
	return nil
}

func (t *statements) close() {
	for _, stmt := range t.all {
		_ = stmt.Close()
	}
	t.all = nil
}

func (t *statements) exec(ctx context.Context, stmt *sql.Stmt, args ...any) error {
	_, err := stmt.ExecContext(ctx, args...)
	return err
}

func (t *statements) each(ctx context.Context, stmt *sql.Stmt, refs []string) error {
	for _, ref := range refs {
		if err := t.exec(ctx, stmt, ref); err != nil {
			return err
		}
	}
	return nil
}
