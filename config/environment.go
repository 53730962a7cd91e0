package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const envPrefix = "FENCEPROXY_"

// envName returns the variable that sets the key at path.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "[", "_", "]", "").Replace(path))
}

// override is one variable of ours.
type override struct {
	name, value string
	used        bool
}

// overridesIn returns the FENCEPROXY_ variables that may set a key, by name.
// Those for commands that speak to a running proxy, and FENCEPROXY_TEST_*, which
// steer tests, are not among them.
func overridesIn(environ []string) map[string]*override {
	all := make(map[string]*override)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case !strings.HasPrefix(name, envPrefix),
			slices.Contains(commandVariables(), name),
			strings.HasPrefix(name, "FENCEPROXY_TEST_"),
			isServiceLink(name, value),
			all[name] != nil: // the first one counts, as for os.Getenv
		default:
			all[name] = &override{name: name, value: value}
		}
	}
	return all
}

// commandVariables tell commands where a proxy is, and as whom to speak to it.
func commandVariables() []string {
	return []string{
		"FENCEPROXY_CONTROL", "FENCEPROXY_PROXY", "FENCEPROXY_TOKEN", "FENCEPROXY_TOKEN_FILE",
		"FENCEPROXY_CA_FILE", "FENCEPROXY_CERT_FILE", "FENCEPROXY_KEY_FILE",
	}
}

// isServiceLink knows the variables that Kubernetes and old Docker links put
// into every container beside a service named fenceproxy or fenceproxy-control
// (FENCEPROXY_SERVICE_HOST, FENCEPROXY_PORT=tcp://...). Nobody wrote them, so
// they are no fault.
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
func isServiceLink(name, value string) bool {
	if serviceHostOrPort().MatchString(name) {
		return true
	}
	return servicePort().MatchString(name) && strings.Contains(value, "://")
}

func serviceHostOrPort() *regexp.Regexp {
	return regexp.MustCompile(`^FENCEPROXY(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))$`)
}

func servicePort() *regexp.Regexp {
	return regexp.MustCompile(`^FENCEPROXY(_[A-Z0-9_]+)?_PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
}

// overrideShared applies the variables of all keys but those of routes.
func (d *decoder) overrideShared(c *Config, overrides map[string]*override) {
	// There are no routes yet, so this reaches everything else.
	d.override(reflect.ValueOf(c).Elem(), "", overrides)
}

// overrideRoutes applies the variables of routes. One that names the index
// after the last route makes a new route, so that a configuration can consist
// of variables alone.
func (d *decoder) overrideRoutes(c *Config, overrides map[string]*override) {
	if d.isBad("routes") {
		for name, o := range overrides {
			o.used = o.used || strings.HasPrefix(name, envPrefix+"ROUTES_")
		}
		return
	}
	for {
		next := fmt.Sprintf("routes[%d]", len(c.Routes))
		if !slices.ContainsFunc(routeKeys(next), func(path string) bool { return overrides[envName(path)] != nil }) {
			break
		}
		c.Routes = append(c.Routes, newRoute(c.Defaults))
		d.origin[next] = place{file: fileEnvironment}
	}
	for i := range c.Routes {
		d.override(reflect.ValueOf(&c.Routes[i]).Elem(), fmt.Sprintf("routes[%d]", i), overrides)
	}
}

// routeKeys lists the paths of all keys of the route at path.
func routeKeys(path string) []string {
	var all []string
	walk(reflect.ValueOf(Route{}), path, func(at string, _ field, _ reflect.Value) { all = append(all, at) })
	return all
}

// override applies the variables of the keys of the block at path.
func (d *decoder) override(block reflect.Value, path string, overrides map[string]*override) {
	walk(block, path, func(at string, f field, v reflect.Value) {
		o := overrides[envName(at)]
		if o == nil {
			return
		}
		o.used = true
		var err error
		if f.typ.Kind() == reflect.Slice {
			err = setList(v, splitList(o.value))
		} else {
			err = setText(v, o.value)
		}
		from := place{file: fileEnvironment, key: o.name}
		d.origin.set(at, from)
		if err != nil {
			d.addAt(from, at, o.name, "%s", err.Error())
		}
	})
}

// splitList splits a comma-separated list; blanks around its elements are not
// part of them.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	elements := strings.Split(text, ",")
	for i := range elements {
		elements[i] = strings.TrimSpace(elements[i])
	}
	return elements
}

// rejectUnused reports the variables that set nothing.
func (d *decoder) rejectUnused(overrides map[string]*override) {
	names := make([]string, 0, 64)
	all := Default()
	all.Routes = []Route{newRoute(all.Defaults)}
	walk(reflect.ValueOf(all), "", func(path string, _ field, _ reflect.Value) { names = append(names, envName(path)) })

	unused := slices.SortedFunc(maps.Values(overrides), func(a, b *override) int { return cmp.Compare(a.name, b.name) })
	for _, o := range unused {
		if o.used {
			continue
		}
		from, shown := place{file: fileEnvironment}, printable(o.name)
		// Judge a route's variable by the names of the first route.
		asFirst, index := o.name, ""
		if rest, ok := strings.CutPrefix(o.name, envPrefix+"ROUTES_"); ok {
			if number, option, ok := strings.Cut(rest, "_"); ok {
				if _, err := strconv.ParseUint(number, 10, 64); err == nil {
					asFirst, index = envPrefix+"ROUTES_0_"+option, number
				}
			}
		}
		if index != "" && slices.Contains(names, asFirst) {
			d.addAt(from, o.name, shown, "names a route beyond the last: routes are numbered from 0 without a gap")
			continue
		}
		hint, meant := suggestion(asFirst, names)
		if index != "" && meant != "" {
			hint = strings.Replace(hint, "_ROUTES_0_", "_ROUTES_"+index+"_", 1)
		}
		d.addAt(from, o.name, shown, "sets no key of the configuration%s", hint)
	}
}
