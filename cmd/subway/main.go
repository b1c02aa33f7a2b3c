// Command subway is the Gateway, the Edge, a simulated device, and the tools around them
// in one binary. Here are flags, configuration, signals and exit codes; the work is elsewhere.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

// version and commit are set by the build (-ldflags -X).
var (
	version = "dev"
	commit  = "unknown"
)

// Exit codes. Those of `subway send` tell the outcome apart.
const (
	exitOK      = 0
	exitFail    = 1 // the command's own failure; a second signal
	exitUsage   = 2 // usage, configuration, an address that is taken, a Gateway that is not there
	exitTimeout = 3 // send: the command ended by its timeout
	exitOpen    = 4 // send: the command had not ended when the wait was over
	exitRefused = 5 // send: the Gateway did not take the command
)

type cli struct {
	Config  configFlag `help:"YAML file with settings, by the flags' names; flags and the environment win over it." placeholder:"FILE" env:"SUBWAY_CONFIG"`
	Gateway gatewayCmd `cmd:"" help:"Run the Gateway."`
	Edge    edgeCmd    `cmd:"" help:"Run an edge: the proxy of the devices of one place."`
	Device  deviceCmd  `cmd:"" help:"Run simulated devices."`
	Send    sendCmd    `cmd:"" help:"Send a command to a device and, if asked to, wait for its end."`
	Loadgen loadgenCmd `cmd:"" help:"Simulate a fleet against a Gateway, measure it and keep books of every command."`
	Up      upCmd      `cmd:"" help:"Run a Gateway, an Edge and simulated devices, to try things out."`
	Journal journalCmd `cmd:"" help:"Look into the journal of a Gateway."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// console is where a command talks to its user.
type console struct {
	stdout, stderr io.Writer
}

type versionCmd struct{}

// Run implements the command.
func (versionCmd) Run(c *console) error {
	fmt.Fprintf(c.stdout, "subway %s (%s)\n", version, commit)
	return nil
}

// exitError ends the process with a code of its own.
type exitError struct {
	code int
	err  error // nil: everything has been said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func usage(err error) error { return &exitError{exitUsage, err} }

func main() { os.Exit(run(os.Args[1:], &console{os.Stdout, os.Stderr})) }

// run is main with its surroundings as arguments. An error is one line on stderr.
func run(args []string, c *console) int {
	var root cli
	helped := false
	parser, err := kong.New(&root, kong.Name("subway"), kong.Description("A device-command gateway."),
		kong.Writers(c.stdout, c.stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.DefaultEnvars("SUBWAY"), kong.Exit(func(int) { helped = true }), kong.Bind(c))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err == nil {
		err = ctx.Run()
	} else {
		err = usage(err)
	}
	return report(err, c.stderr)
}

// report says what went wrong in one line and returns the exit code.
func report(err error, w io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := exitFail
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(w, "subway: "+oneLine(text))
	}
	return code
}

// oneLine keeps what others sent from breaking a line or steering a terminal.
func oneLine(text string) string {
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
