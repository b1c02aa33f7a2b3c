package main

import "subway/server/gateway"

type journalCmd struct {
	Inspect inspectCmd `cmd:"" help:"Show what is in a journal. It changes nothing, and the Gateway may be running."`
}

type inspectCmd struct {
	Dir     string `arg:"" help:"The Gateway's data directory, or a journal that was moved aside." placeholder:"DIR"`
	Records bool   `help:"A line for each record as well."`
}

// Run implements the command.
func (c *inspectCmd) Run(out *console) error {
	if err := gateway.Inspect(out.stdout, c.Dir, c.Records); err != nil {
		return usage(err)
	}
	return nil
}
