package config

import "strings"

// place is where a key was set.
type place struct {
	file         string
	line, column int
	// key is the name to show instead of the path: a variable or a flag.
	key string
}

// origin maps the path of each key that was set, blocks and list elements
// included, to its place. The empty path is the document.
type origin map[string]place

// fault makes a fault of the key at path, at the nearest place that is known.
func (o origin) fault(path, message string) Fault {
	at, key := o.find(path)
	return Fault{File: at.file, Line: at.line, Column: at.column, Key: key, Message: message}
}

// find returns the place to blame for the value at path, and the key to show.
// For a route's option that the route did not set this is the one under
// defaults; for a key that nobody set it is the block that should have had it.
func (o origin) find(path string) (place, string) {
	candidates := []string{path, trimIndex(path)}
	if option, ok := routeOption(path); ok {
		candidates = append(candidates, "defaults."+option, "defaults."+trimIndex(option))
	}
	for i, candidate := range candidates {
		if at, ok := o[candidate]; ok {
			if at.key != "" {
				return at, at.key
			}
			if i < 2 {
				return at, path
			}
			return at, candidate
		}
	}
	for parent := path; parent != ""; {
		parent = trimKey(parent)
		if at, ok := o[parent]; ok {
			if at.file == fileEnvironment {
				return at, envName(path)
			}
			return at, path
		}
	}
	return place{}, path
}

// set records where a value came from and forgets the places of its parts.
func (o origin) set(path string, at place) {
	for known := range o {
		if strings.HasPrefix(known, path+"[") {
			delete(o, known)
		}
	}
	o[path] = at
}

// routeOption returns what follows "routes[i]." in path.
func routeOption(path string) (string, bool) {
	if !strings.HasPrefix(path, "routes[") {
		return "", false
	}
	_, option, ok := strings.Cut(path, "].")
	return option, ok
}

// trimIndex returns the path of the list whose element path is.
func trimIndex(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:strings.LastIndexByte(path, '[')]
	}
	return path
}

// trimKey returns the path of the block or list that path lies in.
func trimKey(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// join returns the path of a key inside the block at path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
