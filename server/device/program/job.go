package program

import (
	"errors"
	"os"
	"time"
)

// Job is an installation that somebody waits for: with it on disk, it is brought to its
// end, and answered, although the process ended meanwhile.
type Job struct {
	Ref    string    `json:"requestRef"`
	Source Source    `json:"source"`
	Began  time.Time `json:"began"` // Options.Timeout counts from here
}

// Begin notes a job, so that Pending returns it after a restart. There is one at a time:
// the caller has it from Wait to End.
func (s *Store) Begin(j Job) error { return s.writeRecord("job.json", j) }

// Pending returns the job that was begun and not ended.
func (s *Store) Pending() (j Job, found bool) {
	if ok, _ := s.readRecord("job.json", &j); !ok {
		return Job{}, false
	}
	return j, j.Ref != ""
}

// End forgets the job: it was answered, or nobody waits for it any more.
func (s *Store) End() error {
	err := os.Remove(s.path("job.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, s.syncDir())
}
