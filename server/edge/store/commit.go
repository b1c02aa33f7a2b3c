package store

import (
	"fmt"
	"slices"
	"time"
)

// maxGroup bounds what one transaction holds, in changes; more wait for the next.
const maxGroup = 4096

// run is the committer. Its round: what has gathered becomes one transaction, synced once;
// then those that asked are told; then what was read for is read.
func (s *Store) run() {
	defer close(s.done)
	lazy := time.NewTicker(s.opt.Lazy)
	defer lazy.Stop()
	retry := time.NewTicker(s.opt.Retry)
	defer retry.Stop()
	for {
		select {
		case <-s.wake:
		case <-lazy.C:
		case <-retry.C:
			if len(s.pending) == 0 && s.failing == nil {
				continue
			}
		}
		for s.round() {
		}
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing {
			s.tried = time.Time{} // a last attempt
			s.round()
			return
		}
	}
}

// round commits once and reads once. It reports whether there is more to do at once.
func (s *Store) round() bool {
	s.mu.Lock()
	n := min(len(s.queue), maxGroup)
	group := append([]*change(nil), s.queue[:n]...)
	left := copy(s.queue, s.queue[n:])
	clear(s.queue[left:])
	s.queue = s.queue[:left]
	reads := s.reads
	more := len(s.queue) > 0
	if more {
		reads = nil
	} else {
		s.reads = nil
	}
	s.mu.Unlock()
	if len(group) > 0 || len(s.pending) > 0 || s.failing != nil {
		s.commit(group)
	}
	for _, read := range reads {
		read()
	}
	return more
}

// commit makes a group stable, with what failed before, or keeps of it what may not be
// lost. While the disk refuses it is asked again no more often than every Retry.
func (s *Store) commit(group []*change) {
	err := s.failing
	if err == nil || time.Since(s.tried) >= s.opt.Retry {
		s.tried = time.Now()
		err = s.transact(append(s.pending, group...))
	}
	all := append(s.pending, group...)
	s.pending = nil
	if (err == nil) != (s.failing == nil) && s.opt.Failing != nil {
		s.opt.Failing(err)
	}
	s.failing = err
	for _, c := range all {
		if err != nil && c.must {
			s.pending = append(s.pending, c)
			continue
		}
		if c.done != nil {
			c.done(err)
		}
	}
	if err != nil {
		s.pending = freeFirst(s.pending)
	}
}

// freeFirst orders changes that wait for room so that those which make room come first.
// What is to be removed again is not written at all, so the order among the rest does not
// matter.
func freeFirst(pending []*change) []*change {
	refs, seqs := map[string]bool{}, map[int64]bool{}
	var frees, rest []*change
	for n := len(pending) - 1; n >= 0; n-- { // from the newest, to see what is removed later
		c := pending[n]
		for _, ref := range c.refs {
			refs[ref] = true
		}
		for _, seq := range c.seqs {
			seqs[seq] = true
		}
		switch {
		case c.refs != nil || c.seqs != nil:
			frees = append(frees, c)
		case c.answer != nil && refs[c.ref] || c.item != nil && seqs[c.item.Seq]:
			if c.done != nil {
				c.done(nil)
			}
		default:
			rest = append(rest, c)
		}
	}
	slices.Reverse(rest)
	return append(frees, rest...)
}

func (s *Store) transact(group []*change) (err error) {
	if _, err := s.conn.ExecContext(s.ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, c := range group {
		if err = c.apply(s); err != nil {
			break
		}
	}
	if err == nil {
		_, err = s.conn.ExecContext(s.ctx, "COMMIT")
	}
	if err != nil {
		_, _ = s.conn.ExecContext(s.ctx, "ROLLBACK") // some errors have rolled back already
		return fmt.Errorf("store: %w", err)
	}
	return nil
}
