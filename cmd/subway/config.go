package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// configFlag names a YAML file. Its keys are the flags' names; those of a command may
// stand under the command's name.
//
//	gateway:
//	  listen: 127.0.0.1:18081
//	  max-pending: 200000
type configFlag string

// BeforeResolve implements kong.BeforeResolve: it puts the file behind the flags and
// the environment.
func (f configFlag) BeforeResolve(k *kong.Kong, ctx *kong.Context, trace *kong.Path) error {
	path := string(ctx.FlagValue(trace.Flag).(configFlag))
	settings, err := readConfig(path)
	if err != nil {
		return err
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
		if fromEnvironment(flag) {
			return nil, nil
		}
		return settingOf(settings, parent, flag), nil
	}))
	return checkConfig(k, path, settings)
}

// fromEnvironment reports whether a variable sets the flag: it wins over the file, which
// the library would let win over it.
func fromEnvironment(flag *kong.Flag) bool {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return true
		}
	}
	return false
}

// settingOf finds a flag's setting: under the command's name, else at the top. It is nil
// where there is none.
func settingOf(settings map[string]any, parent *kong.Path, flag *kong.Flag) any {
	if parent != nil && parent.Node() != nil {
		if under, ok := settings[parent.Node().Name].(map[string]any); ok {
			if v, ok := under[flag.Name]; ok {
				return settingText(flag, v)
			}
		}
	}
	v, ok := settings[flag.Name]
	if _, section := v.(map[string]any); !ok || section {
		return nil // `gateway` is a command as well as a flag of another
	}
	return settingText(flag, v)
}

// settingText gives a setting the form of the flag's value: lists and maps with the
// flag's own separators. An empty setting is none.
func settingText(flag *kong.Flag, v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		sep := string(flag.Tag.Sep)
		if flag.IsMap() {
			sep = string(flag.Tag.MapSep)
		}
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = fmt.Sprint(x)
		}
		return strings.Join(parts, sep)
	case map[string]any:
		parts := make([]string, 0, len(v))
		for key, x := range v {
			parts = append(parts, key+"="+fmt.Sprint(x))
		}
		sort.Strings(parts)
		return strings.Join(parts, string(flag.Tag.MapSep))
	}
	return fmt.Sprint(v)
}

func readConfig(path string) (map[string]any, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	settings := map[string]any{}
	if err := yaml.Unmarshal(b, &settings); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("config file %s: %s", path, first)
	}
	return settings, nil
}

// checkConfig refuses a key that is no flag: a typing error must not pass for a setting.
func checkConfig(k *kong.Kong, path string, settings map[string]any) error {
	for key, v := range settings {
		if node := commandNamed(k, key); node != nil {
			under, ok := v.(map[string]any)
			if v != nil && !ok {
				return fmt.Errorf("config file %s: %s should hold settings", path, key)
			}
			for name := range under {
				if !hasFlag(node, name) {
					return fmt.Errorf("config file %s: %s.%s is no setting", path, key, name)
				}
			}
			continue
		}
		if !anyFlag(k, key) {
			return fmt.Errorf("config file %s: %s is no setting", path, key)
		}
	}
	return nil
}

func commandNamed(k *kong.Kong, name string) *kong.Node {
	for _, n := range k.Model.Children {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func hasFlag(n *kong.Node, name string) bool {
	for _, f := range n.Flags {
		if f.Name == name {
			return true
		}
	}
	return false
}

func anyFlag(k *kong.Kong, name string) bool {
	for _, n := range k.Model.Children {
		if hasFlag(n, name) {
			return true
		}
	}
	return hasFlag(k.Model.Node, name)
}
