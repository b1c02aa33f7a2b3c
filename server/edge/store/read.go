package store

import (
	"database/sql"
	"errors"
)

// ReadAnswer calls fn with the answer that is kept for a ref, nil if there is none.
func (s *Store) ReadAnswer(ref string, fn func(msg []byte, err error)) {
	s.read(func() { fn(s.answerOf(ref)) }, func() { fn(nil, ErrClosed) })
}

func (s *Store) answerOf(ref string) (msg []byte, err error) {
	for _, c := range s.pending {
		if c.ref == ref && c.answer != nil {
			return c.answer, nil
		}
	}
	err = s.stmt.readAnswer.QueryRowContext(s.ctx, ref).Scan(&msg)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return msg, err
}

// ReadItems calls fn with the messages that wait behind seq after, in order: as many as
// have maxBytes, and one at least if there is one.
func (s *Store) ReadItems(after int64, maxBytes int, fn func(items []Item, err error)) {
	s.read(func() { fn(s.itemsAfter(after, maxBytes)) }, func() { fn(nil, ErrClosed) })
}

func (s *Store) itemsAfter(after int64, maxBytes int) (items []Item, err error) {
	rows, err := s.stmt.readItems.QueryContext(s.ctx, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	total := 0
	for rows.Next() {
		var i Item
		if err := rows.Scan(&i.Seq, &i.Kind, &i.Device, &i.Ref, &i.Msg); err != nil {
			return nil, err
		}
		if total += len(i.Msg); total > maxBytes && len(items) > 0 {
			return items, nil
		}
		i.Size = len(i.Msg)
		items = append(items, i)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, c := range s.pending { // came later than all that is in the table
		if c.item == nil || c.item.Seq <= after {
			continue
		}
		if total += len(c.item.Msg); total > maxBytes && len(items) > 0 {
			return items, nil
		}
		items = append(items, *c.item)
	}
	return items, nil
}

// read queues a read behind all changes that were queued before it.
func (s *Store) read(fn, closed func()) {
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.reads = append(s.reads, fn)
	}
	s.mu.Unlock()
	if closing {
		go closed() // as in add
		return
	}
	s.signal()
}
