package journal

import (
	"errors"
	"time"
)

// run is the committer, which alone uses the log: what has gathered while the last group
// was stored becomes the next one.
func (j *Journal) run() {
	defer close(j.done)
	for open := true; open; {
		select {
		case <-j.wake:
		case <-j.closing:
			open = false
		}
		if !j.storeAll() {
			break
		}
		j.truncate()
	}
	if j.store != nil {
		j.store.close()
	}
}

// storeAll stores what was appended. It reports false if Close ended it before.
func (j *Journal) storeAll() bool {
	for {
		g, ok := j.take()
		if !ok && j.store != nil {
			return true
		}
		if !j.keep(g) {
			return false
		}
		if ok {
			j.tell(g)
		}
	}
}

func (j *Journal) take() (g pending, ok bool) {
	j.turn.Lock()
	defer j.turn.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case len(j.queue) > 0:
		g = j.queue[0]
		left := copy(j.queue, j.queue[1:])
		clear(j.queue[left:])
		j.queue = j.queue[:left]
	case j.records > 0:
		g = j.turnLocked()
	default:
		return pending{}, false
	}
	return g, true
}

// keep tries until the group is stored. It reports false if Close ended it before. Of an
// empty group it opens the log, which failed when the journal was opened.
func (j *Journal) keep(g pending) bool {
	for closing := false; ; {
		err := j.try(g)
		if err == nil {
			j.recovered()
			return true
		}
		j.failed(err)
		if closing {
			return false
		}
		retry := time.NewTimer(j.opt.Retry)
		select {
		case <-retry.C:
		case <-j.closing: // one last time
			closing = true
		}
		retry.Stop()
	}
}

// try stores a group. After an error the log is opened anew, which tells whether the group
// is in it nevertheless.
func (j *Journal) try(g pending) error {
	if j.store == nil {
		if err := j.reopen(g.mark); err != nil {
			return err
		}
		j.truncate() // may be what makes room
	}
	if g.b == nil || j.store.last >= g.mark {
		return nil
	}
	err := j.store.put(g.mark, g.b)
	if err != nil {
		j.store.close()
		j.store = nil
	}
	return err
}

// reopen opens the log behind the group before mark, or with the group of that mark. What
// it does with a damaged one is what Open does, but that nobody reads it.
func (j *Journal) reopen(mark uint64) error {
	stored := j.stored.Load()
	s, err := openStore(j.where)
	if err == nil && (s.last < stored || s.last > max(mark, stored)) {
		s.close()
		err = damaged("it ended at group %d and ends at group %d", stored, s.last)
	}
	var bad *damage
	if errors.As(err, &bad) {
		if err = rebuild(j.opt.Dir, j.where, bad.reason, stored, j.opt.Logger); err != nil {
			return err
		}
		s, err = openStore(j.where)
	}
	if err != nil {
		return err
	}
	j.store = s
	return nil
}

// tell makes a stored group known, and its buffer the next but one.
func (j *Journal) tell(g pending) {
	j.count.groups.Add(1)
	j.count.records.Add(uint64(g.records))
	j.count.bytes.Add(uint64(len(g.b)))
	j.unstored.Add(groupLen - int64(len(g.b)))
	j.mu.Lock()
	j.stored.Store(g.mark)
	if cap(g.b) <= keepBytes {
		j.spare = g.b[:groupLen]
	}
	j.wakeLocked(g.mark)
	fn := j.onStored
	j.mu.Unlock()
	if fn != nil {
		fn(g.mark)
	}
}

// truncate removes what Truncate said. What fails is tried again with the next, or when
// the log is opened anew.
func (j *Journal) truncate() {
	if j.store == nil {
		return
	}
	if err := j.store.truncate(j.before.Load()); err != nil {
		j.opt.Logger.Warn("the head of the journal could not be removed", "why", err)
	}
}

func (j *Journal) failed(err error) {
	j.count.failures.Add(1)
	f := &failure{err, time.Now()}
	if old := j.failure.Load(); old != nil {
		f.since = old.since
	} else {
		j.opt.Logger.Error("the disk refuses the journal: new commands are refused, what is known is kept in memory", "why", err)
	}
	j.failure.Store(f)
}

func (j *Journal) recovered() {
	if f := j.failure.Load(); f != nil {
		j.failure.Store(nil)
		j.opt.Logger.Info("the disk takes the journal again", "after", time.Since(f.since))
	}
}
