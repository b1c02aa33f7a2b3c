package device

import (
	"context"
	"strconv"
	"time"
)

// work runs commands one after the other until ctx ends.
func (d *Device) work(ctx context.Context) {
	for {
		select {
		case t := <-d.queue:
			d.run(ctx, t)
		case <-ctx.Done():
			return
		}
	}
}

// run runs one command and answers it.
func (d *Device) run(ctx context.Context, t *task) {
	fails := d.opt.fails(t.commandType)
	if d.opt.Programs != nil && t.commandType == programType && !fails {
		d.install(ctx, t)
		return
	}
	began := time.Now()
	if stopped := d.simulate(ctx, t); stopped != "" {
		d.report(t, stopped, nil, time.Since(began))
		return
	}
	took := time.Since(began)
	outcome := Completed
	var body []byte
	if fails {
		outcome, body = Failed, appendFailure(nil, d.opt.FailCode, "The command failed, as this device was told to")
	} else {
		body = d.state.apply(t.commandType, t.command)
	}
	if !d.answer(t.entry, appendResponse(nil, t.entry.ref, outcome == Completed, body, took, d.now())) {
		outcome, body = Cancelled, nil
	}
	d.report(t, outcome, body, took)
}

// answer remembers the answer and sends it; it reports false where a CANCEL was faster.
func (d *Device) answer(e *entry, answer []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.ended {
		return false
	}
	e.unsent = d.link.Send(answer) != nil
	d.memory.end(e, answer)
	return true
}

// simulate lets the command's time pass, with its progress. It returns the outcome that
// cut it short, or "".
func (d *Device) simulate(ctx context.Context, t *task) Outcome {
	steps := d.opt.Progress + 1
	pause := d.opt.delay() / time.Duration(steps)
	for i := 1; ; i++ {
		if stopped := pauseFor(ctx, t.entry.cancelled, pause); stopped != "" {
			return stopped
		}
		if i == steps {
			return ""
		}
		d.send(appendProgress(nil, t.entry.ref, strconv.AppendInt(nil, int64(100*i/steps), 10), "RUNNING", d.now()))
	}
}

func pauseFor(ctx context.Context, cancelled <-chan struct{}, pause time.Duration) Outcome {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-cancelled:
		return Cancelled
	case <-ctx.Done():
		return Abandoned
	default:
	}
	select {
	case <-cancelled:
		return Cancelled
	case <-ctx.Done():
		return Abandoned
	case <-timer.C:
		return ""
	}
}
