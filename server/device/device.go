package device

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"subway/core/wire"
	"subway/server/device/program"
	"subway/server/uplink"
)

// Device is a simulated device.
type Device struct {
	opt        Options
	link       *uplink.Link
	state      state
	queue      chan *task
	registered chan struct{} // closed at the first REGISTER_ACK
	once       sync.Once

	mu       sync.Mutex
	memory   memory    // guarded by mu
	doubtful time.Time // guarded by mu: since when answers may not have arrived, as of the last loss

	// Used by the goroutine that reads from the connection.
	env     wire.Envelope
	scratch wire.Scratch
	out     []byte
}

// task is a command that waits for its turn.
type task struct {
	entry       *entry
	commandType string
	command     []byte
	job         *program.Job // an installation that was begun before the process started
}

// New checks the options; the error is for the operator.
func New(opt Options) (*Device, error) {
	opt = opt.withDefaults()
	if err := opt.check(); err != nil {
		return nil, err
	}
	d := &Device{
		opt: opt, state: state{began: time.Now(), programs: opt.Programs}, queue: make(chan *task, opt.Queue),
		registered: make(chan struct{}),
	}
	var err error
	d.link, err = uplink.New(uplink.Config{
		URLs:     opt.URLs,
		Register: func() []byte { return appendRegister(nil, opt.ID, d.now()) },
		Goodbye:  appendUnregister(nil, opt.ID),
		Dial:     dialer(opt.ID, opt.Connection), Schedule: opt.Schedule,
		Up: d.up, Receive: d.receive, Down: d.down,
	})
	return d, err
}

// Registered is closed when the device has registered for the first time.
func (d *Device) Registered() <-chan struct{} { return d.registered }

// Run connects and answers commands until ctx ends; then it says goodbye and closes in
// order. Commands that run then are abandoned. Call it once.
func (d *Device) Run(ctx context.Context) {
	if d.opt.Programs != nil {
		defer d.opt.Programs.Close()
		d.resume()
	}
	var workers sync.WaitGroup
	for range d.opt.Parallel {
		workers.Go(func() { d.work(ctx) })
	}
	if d.opt.StatusInterval > 0 {
		workers.Go(func() { d.tellStatus(ctx) })
	}
	d.link.Run(ctx)
	workers.Wait()
}

// now is the wall clock plus what the monotonic clock has counted since the start.
func (d *Device) now() wire.Time {
	return wire.Time(d.state.began.UnixNano()) + wire.Time(time.Since(d.state.began))
}

func (d *Device) up(url string, _ []byte) {
	d.opt.Logger.Info("registered", "device", d.opt.ID, "url", url)
	d.once.Do(func() { close(d.registered) })
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.memory.ended {
		if e.unsent || e.answer != nil && e.at.After(d.doubtful) {
			e.unsent = d.link.Send(e.answer) != nil
		}
	}
}

func (d *Device) down(end uplink.Down) {
	if end.Registered {
		d.mu.Lock()
		d.doubtful = time.Now().Add(-doubt)
		d.mu.Unlock()
	}
	d.opt.Logger.Warn("not connected", "device", d.opt.ID, "url", end.URL, "reason", end.End.Error(), "again_in", end.Wait.Round(time.Millisecond))
}

// receive takes one message.
func (d *Device) receive(msg []byte) {
	if err := d.env.Scan(msg, wire.DefaultMaxDepth); err != nil {
		d.refuse(err.(*wire.Fault))
		return
	}
	switch d.env.Type {
	case wire.TypeCommand:
		d.command()
	case wire.TypeCancel:
		var c wire.Cancel
		if f := d.env.Cancel(&c, &d.scratch); f != nil {
			d.refuse(f)
			return
		}
		d.mu.Lock()
		d.memory.cancel(string(c.Ref))
		d.mu.Unlock()
	case wire.TypeError:
		var m wire.ErrorMessage
		if d.env.ErrorMessage(&m, &d.scratch) == nil {
			d.opt.Logger.Warn("the Gateway answered with an error", "device", d.opt.ID, "code", string(m.Code), "message", string(m.Message), "requestRef", string(m.Ref))
		}
	}
}

// refuse answers a message that is not good. Where it has a requestRef, this ends the
// request as failed (PROTOCOL.md section 3, ERROR).
func (d *Device) refuse(f *wire.Fault) {
	d.out = wire.AppendFault(d.out[:0], f, d.env.Ref(nil), d.now())
	d.send(d.out)
}

// command takes a COMMAND in: known refs are not executed again.
func (d *Device) command() {
	var c wire.Command
	if f := d.env.Command(&c, &d.scratch); f != nil {
		d.refuse(f)
		return
	}
	if c.Ref == nil {
		d.refuse(&wire.Fault{Code: wire.CodeInvalidMessage, Field: "requestRef", Text: "requestRef is required"})
		return
	}
	if string(c.Target) != d.opt.ID {
		d.out = wire.AppendError(d.out[:0], wire.CodeDeviceNotFound.String(), "This device is "+d.opt.ID, nil, c.Ref, d.now())
		d.send(d.out)
		return
	}
	t := &task{commandType: string(c.CommandType), command: slices.Clone(d.env.Raw(wire.MemberCommand))}
	switch outcome := d.admit(t, string(c.Ref)); outcome {
	case Overloaded:
		d.out = wire.AppendError(d.out[:0], wire.CodeOverloaded.String(), "The device's queue is full", []byte(`{"retryAfter":1}`), c.Ref, d.now())
		d.send(d.out)
		d.report(t, outcome, nil, 0)
	case Repeated:
		d.report(t, outcome, nil, 0)
	}
}

// admit queues a command, unless its ref is known or the queue is full.
func (d *Device) admit(t *task, ref string) Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.entry = d.memory.known[ref]; t.entry != nil {
		if t.entry.answer != nil {
			t.entry.unsent = d.link.Send(t.entry.answer) != nil
		}
		return Repeated
	}
	t.entry = d.memory.begin(ref)
	select {
	case d.queue <- t:
		return ""
	default:
		d.memory.forget(t.entry)
		return Overloaded
	}
}

// send drops what finds no connection: it answered somebody who is gone.
func (d *Device) send(msg []byte) {
	if err := d.link.Send(msg); err != nil {
		d.opt.Logger.Debug("not sent", "device", d.opt.ID, "reason", err.Error())
	}
}

func (d *Device) report(t *task, o Outcome, result []byte, took time.Duration) {
	d.opt.Report(Report{Device: d.opt.ID, Ref: t.entry.ref, CommandType: t.commandType, Outcome: o, Result: result, Took: took})
}

// tellStatus sends DEVICE_STATUS at once after the registration and then at intervals.
func (d *Device) tellStatus(ctx context.Context) {
	select {
	case <-d.registered:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(d.opt.StatusInterval)
	defer ticker.Stop()
	for {
		d.send(appendDeviceStatus(nil, d.opt.ID, d.state.appendStatus(nil), d.now()))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// delay draws how long a command takes.
func (b *Behaviour) delay() time.Duration {
	if b.DelayMax <= b.DelayMin {
		return b.DelayMin
	}
	return b.DelayMin + rand.N(b.DelayMax-b.DelayMin+1)
}

// fails draws whether a command fails.
func (b *Behaviour) fails(commandType string) bool {
	return slices.Contains(b.FailTypes, commandType) || rand.Float64() < b.FailRate
}
