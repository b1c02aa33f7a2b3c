package device

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"subway/server/device/program"
)

// programType is the commandType of a command that names a program to install
// (PROTOCOL.md section 3, COMMAND): its `url` and `sha256` are members of `command`.
const programType = "PROGRAM"

// resume plays what is active, and takes up the installation that the end of the process
// before this one cut short. Nothing else runs yet.
func (d *Device) resume() {
	store := d.opt.Programs
	if p, ok := store.Active(); ok {
		d.opt.Play(p)
	}
	if err := store.Damaged(); err != nil {
		d.opt.Logger.Error("no program to play", "device", d.opt.ID, "reason", err.Error())
	}
	job, found := store.Pending()
	if !found {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue <- &task{entry: d.memory.begin(job.Ref), commandType: programType, job: &job}
}

// install runs a PROGRAM command. The job is on disk while it runs, so that also a process
// that ends in between does not leave it without an answer.
func (d *Device) install(ctx context.Context, t *task) {
	began := time.Now()
	p, err := d.installJob(ctx, t, began)
	took := time.Since(began)
	outcome, body := Completed, []byte(nil)
	var f *program.Failure
	switch {
	case err == nil:
		body = append(appendProgram([]byte(`{"program":`), p), '}')
	case errors.As(err, &f):
		outcome, body = Failed, appendFailure(nil, f.Code, f.Text)
	case ctx.Err() != nil:
		d.report(t, Abandoned, nil, took)
		return // the job stays for the next start
	default:
		outcome = Cancelled
	}
	if outcome != Cancelled && !d.answer(t.entry, appendResponse(nil, t.entry.ref, outcome == Completed, body, took, d.now())) {
		outcome, body = Cancelled, nil
	}
	d.report(t, outcome, body, took)
}

// installJob does the work of install. Its error is a *program.Failure, or that of a
// context: ctx, or the command was cancelled.
func (d *Device) installJob(ctx context.Context, t *task, now time.Time) (program.Program, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-t.entry.cancelled:
			cancel()
		case <-ctx.Done():
		}
	}()
	store := d.opt.Programs
	if err := store.Wait(ctx); err != nil {
		return program.Program{}, err
	}
	defer store.Done()
	job := t.job
	if job == nil {
		job = &program.Job{Ref: t.entry.ref, Source: sourceOf(t.command), Began: now}
		if f := job.Source.Check(); f != nil {
			return program.Program{}, f
		}
		if err := store.Begin(*job); err != nil {
			return program.Program{}, &program.Failure{Code: "STORAGE_FAILED", Text: err.Error()}
		}
	}
	before, _ := store.Active()
	p, err := store.Install(ctx, job.Source, job.Began, func(at program.Progress) {
		d.send(appendProgress(nil, t.entry.ref, appendBytes(nil, at), string(at.Stage), d.now()))
	})
	if err == nil && p != before {
		d.opt.Play(p)
	}
	if d.stays(t, err) {
		return p, err
	}
	if err := store.End(); err != nil {
		d.opt.Logger.Warn("the job stays on disk", "device", d.opt.ID, "reason", err.Error())
	}
	return p, err
}

// stays says that the process is ending, not the job.
func (d *Device) stays(t *task, err error) bool {
	select {
	case <-t.entry.cancelled:
		return false
	default:
	}
	var f *program.Failure
	return err != nil && !errors.As(err, &f)
}

// sourceOf reads what a PROGRAM command wants installed; what is no string reads as "".
func sourceOf(command []byte) (s program.Source) {
	members := membersOf(command)
	_ = json.Unmarshal(members["url"], &s.URL)
	_ = json.Unmarshal(members["sha256"], &s.SHA256)
	return s
}
